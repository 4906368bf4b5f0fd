"""Experts runs in miniature: what is trained, searched, compared, written, shown, verified, refused."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agent_forge.cli import kind_views
from agent_forge.phases.experts import figures, panels
from agent_forge.phases.experts.recipes import Fit, Route
from agent_forge.phases.experts.script import Experts
from agent_forge.phases.experts.work import Context
from agent_forge.runs.errors import ConfigError, NotFoundError, SourceError
from agent_forge.runs.history import audit, repository
from agent_forge.runs.history.repository import history
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.lists import model_registry
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.run import StudyRun
from agent_forge.weights import operations, svf
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete
from agent_forge.worker.commands import fork, submit
from agent_forge.worker.tasks import runner
from testing.miniatures import experts_runs
from testing.models import toy_models
from testing.models.toys import Toys
from testing.verification import (
    announced,
    assert_amounts,
    copy_of,
    in_folder,
    kinds_of_example,
    shown_early,
    verified_again,
)
from tests.integration.cli.test_forge import succeeds
from tests.integration.kinds.test_forgeries import edit, relinked


@pytest.fixture(scope="module")
def made(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run with two further models: (home, state, folder of the result)."""
    folder = tmp_path_factory.mktemp("experts")
    home = Home(folder / "home")
    experts_runs.submit(home, toys.base, toys.sources[:2])
    return experts_runs.result(home, folder / "out")


def run_of(state: MakingState) -> StudyRun:
    """The run with all that its script has said."""
    return Experts().run(state)


def given_on(state: MakingState, on: str) -> Any:
    """The bits per byte of the given model on a slice."""
    return state.answers[run_of(state).on("given", "bits-per-byte@1", on).key]


def test_experts_are_of_the_domains_that_the_model_predicts_worst(made) -> None:
    """The neutral one has none; each is as many numbers as singular values."""
    _, state, _ = made
    event, run = given_on(state, "selection"), run_of(state)
    worst = sorted(("rows", "sums"), key=lambda domain: -event.values[domain])
    assert list(run.known["experts"]) == worst
    assert state.started.numbers == 9 * 16  # three matrices of rank 16 in three blocks
    for domain, recipe in run.known["experts"].items():
        assert recipe.data == {domain: 1.0}
        assert complete(recipe) == recipe
    for recipe in run.recipes.values():
        if not isinstance(recipe, Train):
            assert operations.complete(recipe) == recipe


def test_all_arms_measure_as_many_mixtures(made) -> None:
    _, state, _ = made
    searches = run_of(state).known["searches"]
    assert sorted(searches) == ["mixtures", "models", "random"]
    assert {one.ended[-1].evaluations for one in searches.values()} == {30}
    assert {"mixtures", "random", "models", "given", "mean-of-models"} <= set(state.completed.arms)


def test_adapters_are_trained_beside_each_expert_on_its_windows(made) -> None:
    """About as many numbers: rank 1 on one of three layers of 32 × 16 in three blocks has 3 · 48."""
    _, state, _ = made
    own = state.started.adapters
    assert own is not None
    assert (own.rank, own.numbers) == (1, 144)
    assert len(own.modules) == 1
    run = run_of(state)
    for domain, expert in run.known["experts"].items():
        recipe = run.trainings[f"lora-{domain}"]
        same = ("data", "data_digests", "batch", "context", "steps", "upto", "seed", "purpose")
        assert all(getattr(recipe, field) == getattr(expert, field) for field in same)
        assert recipe.start == run.recipes["given"].id
        assert complete(recipe) == recipe
        assert f"lora-{domain}" in state.completed.arms
    found, values = figures.by_domain(run), state.completed.figures
    for name, arm in (("", "only"), ("lora_", "lora")):
        gains = {d: found[f"{arm}-{d}"] for d in ("rows", "sums")}
        mine = [gains[d][d].value for d in gains]
        assert values[f"{name}own"].value == pytest.approx(sum(mine) / 2)
        lost = [-one.value for d in gains for other, one in gains[d].items() if other != d]
        assert len(lost) == 4
        assert values[f"{name}damage"].value == pytest.approx(sum(lost) / 4)
    lead = values["own"].value - values["lora_own"].value
    assert values["own_over_lora"].value == pytest.approx(lead)
    assert values["own_over_lora"].low <= lead <= values["own_over_lora"].high


def test_a_folded_mixture_is_what_the_search_measured(made) -> None:
    """The weights of a finalist, made by its recipe, are those that were in memory, to the last bit."""
    home, state, _ = made
    context: Any = Context.opened(state, Artifacts.of(home))
    run = run_of(state)
    search = run.known["searches"]["mixtures"]
    survivors = [search.factors(id_) for id_ in search.survivors]
    for name, factors in run.known["finalists"].items():
        if figures.arm_of(name) == "mixtures":
            assert factors in survivors
            in_memory = context._mixer.weights(factors)
            assert digest(in_memory) == state.made[run.recipes[name].id].digest, name


def test_a_fork_after_the_search_may_measure_others_again(made, tmp_path: Path) -> None:
    """The choice of finalists may change until the first of them is made, the search may not."""
    given, state, _ = made
    home = Home(tmp_path / "home")
    shutil.copytree(given.folder, home.folder)
    with closing(home.open_store()) as store:
        rows = list(history(store, state.run))
        last = max(n for n, row in enumerate(rows, 1) if row.type == "generation_ended")
        with pytest.raises(ConfigError, match="elite cannot change in a fork"):
            fork.plan(store, state.run, last, None, {"drift": 0.4, "elite": 1})
        with pytest.raises(ConfigError, match="finalists cannot change once a finalist is made"):
            fork.plan(store, state.run, len(rows) - 1, None, {"finalists": 1})
        changes = {"finalists": 1, "apart": 0.3, "drift": 0.4}
        branch = fork.plan(store, state.run, last, None, changes)
        run = fork.fork(store, branch)
        runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)
        other = repository.load(store, run)
        assert audit.audit(list(history(store, run))) == []
    arms = ("mixtures", "models", "random")
    mine, theirs = run_of(state).known, run_of(other).known
    assert sorted(theirs["finalists"]) == [f"{arm}-1" for arm in arms]
    assert len(mine["finalists"]) > len(arms)
    assert all(theirs["searches"][arm].ended == mine["searches"][arm].ended for arm in arms)


def test_a_mixture_that_two_arms_have_is_measured_once(made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The random arm begins with the mixtures of the search: their losses are kept, to the last bit."""
    home, state, _ = made
    context: Any = Context.opened(state, Artifacts.of(home))
    arms = run_of(state).known["searches"]
    ours, other = arms["mixtures"], arms["random"]
    mixtures = ours.bred(0).mixtures
    assert mixtures == other.bred(0).mixtures
    given, bar = ours.given, ours.bar(0)
    first = [context._scorer.scored(f, given, bar) for f in mixtures[:3]]
    assert first == [ours.items(f"0/{slot}") for slot in range(3)]
    monkeypatch.setattr(context._mixer, "mixed", None)  # to mix again would fail
    assert [context._scorer.scored(f, given, bar) for f in mixtures[:3]] == first


def test_the_model_is_decomposed_once_at_the_start_and_not_again_by_who_goes_on(
    made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the machine reads what the run has; a start needs each matrix once."""
    home, state, _ = made
    matrices, factors = list[torch.Tensor](), svf.factors

    def counted(matrix: torch.Tensor) -> Any:
        matrices.append(matrix)
        return factors(matrix)

    monkeypatch.setattr(svf, "factors", counted)
    context: Any = Context.opened(state, Artifacts.of(home))
    assert context.classifier
    assert matrices == []
    fresh = Experts().state()
    fresh.take(state.submitted)
    copied = Home(Path(shutil.copytree(home.folder, tmp_path / "home")))
    started = Context(fresh, Artifacts.of(copied)).started()
    assert started.canary == state.started.canary
    parts = state.submitted.config.parts
    assert len(matrices) == len(svf.names(context.given().weights, parts))


def test_figures_follow_from_what_was_measured(made) -> None:
    """The gain is the mean over the domains of experts; the neutral domain is the drift."""
    _, state, _ = made
    run, best = run_of(state), state.completed.chosen
    rate = {
        arm: {d: math.fsum(e.items[d]) / math.log(2) / sum(e.sizes[d]) for d in e.items}
        for arm, e in run.seen.items()
    }
    values = state.completed.figures
    gains = [1 - rate[best][d] / rate["given"][d] for d in ("rows", "sums")]
    assert values["gain"].value == pytest.approx(sum(gains) / 2)
    lost = rate[best]["phrases"] / rate["given"]["phrases"] - 1
    assert values["drift"].value == pytest.approx(lost)
    assert values["drift"].low <= values["drift"].value <= values["drift"].high
    assert values["experts"].value == len(run.known["kept"])
    assert values["evaluations"].value == 30
    for arm, name in (("mixtures", "hypervolume"), ("random", "hypervolume_random")):
        assert values[name].value == run.known["searches"][arm].ended[-1].hypervolume
    event = run.known["routed"]
    own = [1 - math.fsum(event.items[d]) / math.fsum(event.given[d]) for d in ("rows", "sums")]
    assert values["dispatch"].value == pytest.approx(sum(own) / 2)


@pytest.mark.slow
def test_the_result_is_the_best_within_the_limit_of_drift(made) -> None:
    """On the selection slice; a model that is not better beyond chance is passed through."""
    _, state, _ = made
    base, run = given_on(state, "selection"), run_of(state)
    seen: Any = {name: state.answers[task.key] for name, task in run.candidates.items()}
    values = {}
    for name, shares in figures.shares(seen, base).items():
        if shares["phrases"] <= 1.5:
            values[name] = (shares["rows"] + shares["sums"]) / 2
    best = min(values, key=lambda name: (values[name], name))
    assert run.result_name == best
    strict = run.settings.model_copy(update={"drift": -1.0})
    nearest = figures.best_of_arms(strict, seen, base)["mixtures"]  # compared in any case
    ours = [name for name in seen if figures.arm_of(name) == "mixtures"]
    lost = {name: seen[name].values["phrases"] for name in ours}
    assert lost[nearest] == min(lost.values())
    assert figures.best(strict, seen, base) == "given"


def test_the_folder_has_model_items_experts_and_report(made, toys: Toys) -> None:
    """The model is an ordinary folder; the bundle says what its vectors are of."""
    _, state, out = made
    opened = open_checkpoint(out / "model")
    assert digest(opened.tensors()) == state.completed.models["model"].digest
    assert (out / "model" / "tokenizer.json").read_bytes() == (
        toys.base / "tokenizer.json"
    ).read_bytes()
    told = json.loads((out / "experts.json").read_text())
    assert told["models"] == {"model": digest(opened.tensors())}
    assert told["gains"].keys() == state.completed.arms.keys() - {"given"}
    bundle = json.loads((out / "experts" / "experts.json").read_text())
    made_by = run_of(state).recipes
    assert bundle["decomposition"] == state.made[made_by["svd"].id].digest
    assert bundle["model"] == state.started.model.digest
    vectors = load_file(out / "experts" / "experts.safetensors")
    for domain in bundle["experts"]:
        own = {n.partition("/")[2]: z for n, z in vectors.items() if n.startswith(f"{domain}/")}
        assert digest(own) == state.made[made_by[f"expert-{domain}"].id].digest
    centroids = load_file(out / "experts" / "classifier.safetensors")
    assert set(centroids) == {"deviation", *(f"centroid/{d}" for d in ("phrases", "rows", "sums"))}


def test_the_result_is_found_by_name_and_tells_all_that_it_was_made_from(made, toys: Toys) -> None:
    home, state, _ = made
    with closing(home.open_store()) as store:
        best = run_of(state).result_name or ""
        for name, wanted in (("x", best), ("x:only-sums", "only-sums")):
            origin = model_origin.find(store, name)
            assert origin is not None
            assert origin.recipe_id == run_of(state).recipes[wanted].id
        rows, total = model_registry.listed(store)
    assert total == 1
    assert rows[0]["parameters"] == state.started.model.parameters
    kind = Experts()
    places = [one.place for one in kind.models.ancestry(state, "only-sums")]
    assert places == ["only-sums", "given", "svd", "expert-sums", "ones", "given"]
    mean = kind.models.ancestry(state, "mean-of-models")
    assert [one.given for one in mean[-3:]] == [
        digest(open_checkpoint(f).tensors()) for f in (toys.base, *toys.sources[:2])
    ]
    with pytest.raises(NotFoundError, match="no model 'poetry'"):
        kind.models.origin(state, (), "poetry")
    again = kind.requests.again(state.submitted)
    assert again.models == {
        "model": [str(toys.base)],
        "merges": [str(folder) for folder in toys.sources[:2]],
    }


@pytest.mark.slow
def test_its_panels_and_its_terminal_show_the_front(made) -> None:
    home, state, out = made
    shown = overview(state)
    assert [p.name for p in shown.panels] == [
        *("arms", "quality", "loss", "speed", "norm", "rate"),
        *("experts", "front", "hypervolume", "models"),
    ]
    view = kind_views.of("experts")
    lines = [line for row in experts_runs.rows(home) if (line := view.unit(state, row))]
    assert len([line for line in lines if line.startswith("generation ended: ")]) == 9
    told = succeeds(home.folder, "show", "x", "--all")
    assert "Mixtures beside the given model" in told.stdout
    assert "lead over random mixtures " in announced(state, out)
    run = run_of(state)
    assert "of as many random ones" in "\n".join(panels.sentences(run))
    passed = copy(run)
    passed.result = passed.result_name = "given"
    assert "passed through unchanged" in panels.sentences(passed)[0]
    assert shown_early(state).panels == ()


@pytest.mark.slow
def test_a_run_without_a_search_ends_well(toys: Toys, tmp_path: Path) -> None:
    """Then the result is one of the experts alone, or the given model."""
    home = Home(tmp_path)
    experts_runs.submit(home, toys.base, [toys.base], evaluations=0, experts=1, lora=False)
    state = experts_runs.finish(home)
    assert "have the same weights" in " ".join(state.started.warnings)
    (domain,) = run_of(state).known["experts"]
    assert set(state.completed.arms) <= {"given", f"only-{domain}", "mean-of-models"}
    assert not {"hypervolume", "lora_own"} & set(state.completed.figures)
    assert state.started.adapters is None
    assert audit.audit(experts_runs.rows(home)) == []


@pytest.mark.slow
@pytest.mark.parametrize("train", ["cross-entropy", "reinforce", "cem"])
def test_a_family_of_tasks_gets_an_expert_by_every_training(
    toys: Toys, tmp_path: Path, train: str
) -> None:
    """Its answers are a domain of the search; what it solves is told beside the given model."""
    home = Home(tmp_path)
    experts_runs.submit(home, toys.base, toys.sources[:1], **experts_runs.TASKS | {"train": train})
    state = experts_runs.finish(home)
    assert audit.audit(experts_runs.rows(home)) == []
    run = run_of(state)
    ours, loras = run.known["experts"], [r for n, r in run.trainings.items() if n[:5] == "lora-"]
    assert list(ours)[1:] == ["addition"]  # the toy solves no sum
    text = {"cross-entropy": "svf@1", "reinforce": "svf@1", "cem": "cem@1"}
    tasks = {"cross-entropy": "svf@2", "reinforce": "svf@2", "cem": "cem@1"}
    assert [one.objective for one in ours.values()] == [text[train], tasks[train]]
    inner = {"cross-entropy": "answers@1", "reinforce": "reinforce@1", "cem": "svf@2"}
    assert ours["addition"].params["objective"] == inner[train]
    beside = run.trainings["lora-addition"]
    assert beside.params["objective"] == inner[train].replace("svf@2", "answers@1")
    for recipe in (*ours.values(), *loras):
        assert complete(recipe) == recipe
        points = recipe.params.get("points", 1)
        assert recipe.steps * recipe.batch * recipe.context * points <= 1_300
    event = state.answers["score/mixtures/0/0"]
    assert set(event.items[0]) == {"addition", "phrases", "rows", "sums"}
    solved = figures.solved(run)
    assert set(solved) == set(state.completed.arms)
    own = solved["only-addition"].values["addition"] - solved["given"].values["addition"]
    assert state.completed.figures["solved_own"].value == pytest.approx(own)
    assert "solved" in [panel.name for panel in overview(state).panels]
    told = Experts().view.report(state, ())
    assert told["solved"]["given"]["addition"]["n"] == 8
    assert "more own tasks solved " in "\n".join(panels.lines(run))
    held = [json.loads(line) for line in _items(home)]
    slices = {on: [r["prompt"] for r in held if r["slice"] == on] for on in SLICES}
    assert {on: len(some) for on, some in slices.items()} == {"search": 4, "selection": 8, "test": 8}
    assert len({prompt for some in slices.values() for prompt in some}) == 20


SLICES = ("search", "selection", "test")


def _items(home: Home) -> list[str]:
    """The lines of the items of the family of tasks."""
    (file,) = home.folder.glob("**/items.jsonl")
    return [line for line in file.read_text("utf-8").splitlines() if '"addition' in line]


@pytest.mark.slow
def test_everything_is_made_again_by_verify(made) -> None:
    home, state, out = made
    found, said = verified_again(home, state.run)
    assert found == []
    assert len([line for line in said if "as recorded" in line]) == len(run_of(state).recipes)
    assert in_folder(home, state, out) == []
    assert len(in_folder(home, state, out, models={"model": "0" * 64})) == 2


def scored(**changes: Any) -> Any:
    """Forge the first score of a log."""
    return edit("scored", 0, **changes)


@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("completed", figures={}), "the figures are not those"),
        (edit("completed", chosen="only-sums"), "the chosen are not those"),
        (edit("observed", 0, values={"rows": 0.1}), "do not follow from its items"),
        (edit("fitted", 0, factors=[9.0, 9.0]), "do not follow from its losses"),
        (edit("routed", 0, choices={}), "not of the same windows"),
        (scored(items=[]), "another number of mixtures"),
        (scored(first=5), "other mixtures were measured"),
        (edit("generation_ended", 0, hypervolume=9.0), ""),
        (edit("generation_bred", 0, mixtures=[[0.5, 0.5, 0.5, 0.5]]), ""),
    ],
)
@pytest.mark.slow
def test_forged_figures_are_found(made, forgery: Any, what: str) -> None:
    """Without a model: what was decided no longer follows from the events."""
    rows = experts_runs.rows(made[0])
    found = [str(one.message) for one in audit.audit(relinked(forgery(rows)))]
    assert any(what in one for one in found), found


@pytest.mark.slow
def test_a_mixture_that_was_given_up_against_the_rule_is_found(made) -> None:
    """One whose windows were cut after the probe although no model is ahead of it."""
    rows = experts_runs.rows(made[0])
    event = json.loads(next(row.data for row in rows if row.type == "scored"))
    cut = [{domain: some[:1] for domain, some in event["items"][0].items()}, *event["items"][1:]]
    found = [str(one.message) for one in audit.audit(relinked(scored(items=cut)(list(rows))))]
    assert any("against the rule" in one for one in found), found


def test_tasks_say_what_they_are_in_words(made) -> None:
    _, state, _ = made
    view, names = Experts().view, Experts().view.names(state)
    assert view.task_words("score/random/3/10", names) == "measure mixtures of generation 3 of random"
    assert view.task_words(Fit("code").key, names) == "find the mixture of code"
    assert view.task_words(Route().key, names) == "choose experts by beginnings"


@pytest.mark.slow
def test_a_forecast_tries_the_start_some_steps_and_a_mixture(made, tmp_path: Path) -> None:
    home, state, _ = made
    copied = copy_of(home, tmp_path)
    told = Experts().forecast(state.submitted, Artifacts.of(copied), tmp_path / "models")
    assert open_checkpoint(told.models["model"]).parameters == state.started.model.parameters
    assert_amounts(told)
    config = state.submitted.config
    fewer = config.model_copy(update={"finalists": config.finalists - 3})
    asked = state.submitted.model_copy(update={"config": fewer})
    less = Experts().forecast(asked, Artifacts.of(copied), tmp_path / "fewer")
    assert less.disk.value is not None
    assert told.disk.value is not None
    numbers = 3 * 3 * state.started.model.parameters  # of three arms, in float32
    assert told.disk.value - less.disk.value == 4 * numbers
    counted = ("steps of an expert", "a mixture", "dispatch reads", "measurements read", "making svd")
    assert all(part in told.seconds.how for part in counted)


def test_what_cannot_run_is_refused_before_any_work(toys: Toys, tmp_path: Path) -> None:
    model = {"model": [str(toys.base)]}

    def refused(error: type[Exception], match: str, models: Any = None, **settings: Any) -> None:
        with pytest.raises(error, match=match):
            submit.check(submit.plan(RunRequest("experts", settings, models or model)))

    refused(ConfigError, "an experts run is of one model: --model model=MODEL", {"model": []})
    refused(ConfigError, "no models 'base'", {**model, "base": [str(toys.base)]})
    refused(ConfigError, "the neutral domain 'law' is not measured", neutral="law")
    refused(ConfigError, "nothing can be an expert", domains=["prose", "multilingual"])
    refused(ConfigError, "prompt is 64, the model takes 64 tokens", prompt=64)
    refused(ConfigError, "reinforce needs answers", train="reinforce")
    refused(ConfigError, "there is no task family 'poetry'", families=["poetry"])
    both = {"domains": ["code", "prose", "addition"], "families": ["addition"]}
    refused(ConfigError, "is a domain and a family", **both)
    smaller, _ = toy_models.family(tmp_path / "smaller", 0, intermediate_size=24)
    refused(SourceError, "is not of the given model's architecture", {**model, "merges": [smaller]})


def test_the_example_is_a_pipeline_that_can_start() -> None:
    assert kinds_of_example("experts") == ["cognate", "experts"]
