"""Curriculum runs in miniature: what is chosen, trained, compared, shown, verified, refused."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from agent_forge.cli import kind_views
from agent_forge.evaluation import task_families
from agent_forge.evaluation.answers import EncodedItem, encode, solved
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.task_families import slice_of_prompt
from agent_forge.evaluation.task_families.families import Exercise
from agent_forge.evaluation.training_text.kept_text import ITEMS
from agent_forge.phases.curriculum import figures, items
from agent_forge.phases.curriculum.figures import CurriculumRun
from agent_forge.phases.curriculum.mixing import mix
from agent_forge.phases.curriculum.recipes import START
from agent_forge.phases.curriculum.script import Curriculum
from agent_forge.phases.curriculum.settings import CurriculumConfig
from agent_forge.phases.curriculum.work import Context
from agent_forge.runs.errors import ConfigError, NotFoundError, SourceError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.lists import model_registry
from agent_forge.studies import work as study_work
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.making.maker import Maker
from agent_forge.studies.making.making import MakeTask, MakingState
from agent_forge.studies.training_plan import as_float32
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete, room
from agent_forge.worker.commands import submit
from testing.miniatures import curriculum_runs, pipeline_runs
from testing.models.toys import Toys
from testing.verification import (
    announced,
    assert_amounts,
    copy_of,
    in_folder,
    shown_early,
    verified_again,
)
from tests.integration.cli.test_forge import succeeds
from tests.integration.kinds.test_forgeries import edit, relinked

ARMS = ("adaptive", "uniform", "easy_to_hard")


@pytest.fixture(scope="module")
def made(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run with all arms: (home, state, folder of the result)."""
    folder = tmp_path_factory.mktemp("curriculum")
    home = Home(folder / "home")
    curriculum_runs.submit(home, toys.base)
    return curriculum_runs.result(home, folder / "out")


def course_of(state: MakingState) -> CurriculumRun:
    """Return the run with all that its script has said."""
    return Curriculum().run(state)


def test_each_segment_is_a_recipe_that_carries_on(made) -> None:
    """Steps 0–4–8–12 of one schedule; the first without an optimiser; the mix is the chosen one."""
    _, state, _ = made
    run = course_of(state)
    for arm in ARMS:
        found = run.courses[arm].segments
        assert [(one.first, one.upto, one.steps, one.carries) for one in found] == [
            (0, 4, 12, False), (4, 8, 12, True), (8, 12, 12, True)
        ]  # fmt: skip
        starts = [run.recipes[START].id, *(one.id for one in found)]
        assert [one.start for one in found] == starts[:-1]
        assert [one.data for one in found] == [event.mix for event in run.courses[arm].mixes]
        assert {one.objective for one in found} == {"answers@1"}
    for recipe in run.recipes.values():
        whole = complete(recipe) if isinstance(recipe, Train) else operations.complete(recipe)
        assert whole == recipe
    assert [*run.recipes][:4] == ["start", "adaptive-1", "adaptive-2", "adaptive"]


def test_the_mixes_follow_from_what_was_measured(made) -> None:
    _, state, _ = made
    config, courses = state.submitted.config, course_of(state).courses
    for arm in ARMS:
        before: Any = {}
        course = courses[arm]
        assert len(course.measured) == 4
        for event, seen in zip(course.mixes, course.measured, strict=False):
            wanted = mix.choose(config, course.arm, event.segment, figures.success(seen), before)
            assert (event.mix, event.frontiers) == wanted
            before = event.frontiers
    assert set(courses["uniform"].mixes[0].mix.values()) == {0.25}
    assert set(courses["easy_to_hard"].mixes[0].mix) == {"brackets/1", "sort-digits/1"}


def changed(state: MakingState, name: str, on: str = CHOOSING, **values: float) -> MakingState:
    """Return the state with other success of a model in an observation, by family."""
    task = course_of(state).on(name, figures.MEASURE, on)
    event: Any = state.answers[task.key]
    found = {c: values.get(c.partition("/")[0].replace("-", "_"), v) for c, v in event.values.items()}
    items = {c: (found[c],) * len(some) for c, some in event.items.items()}
    other = Curriculum.state()
    other.__dict__.update(state.__dict__)
    other.memory = {}
    other.answers = {
        **state.answers,
        task.key: event.model_copy(update={"values": found, "items": items}),
    }
    return other


def test_success_promotes_and_the_next_mix_is_another(made) -> None:
    """Had the given model solved all brackets, they would be passed at once, and only replayed."""
    _, state, _ = made
    able = changed(state, START, brackets=1.0)
    able.answers = {key: e for key, e in able.answers.items() if not key.startswith("mix/")}
    able.completed = None
    decision = Curriculum().due(able)
    chosen: list[Any] = [new.event for new in decision.facts]
    first = next(event for event in chosen if event.arm == "adaptive")
    assert (first.frontiers["brackets"].change, first.frontiers["brackets"].level) == ("placed", 2)
    assert first.frontiers["sort-digits"].level == 1
    weights = {"brackets/1": 0.3, "brackets/2": 0.3, "sort-digits/1": 1.1, "sort-digits/2": 0.1}
    assert first.mix == pytest.approx(
        # Weights: passed 0.1 + 0.2, at the frontier 0.1 + 1, above it 0.1.
        {name: weight / 1.8 for name, weight in weights.items()}
    )


def test_the_result_is_the_best_arm_and_of_equals_adaptive(made) -> None:
    """At their ends, on the selection slice."""
    _, state, _ = made
    assert state.completed.chosen == "adaptive"
    other = changed(state, "uniform", brackets=1.0)
    assert course_of(other).result == "uniform"
    assert course_of(changed(other, "adaptive", brackets=1.0)).result == "adaptive"


def test_figures_follow_from_what_was_measured(made) -> None:
    """With success of our own: means over cells, tokens to equal, and what a family has lost."""
    _, state, _ = made
    state = changed(state, "adaptive", TEST, brackets=0.5, sort_digits=1.0)
    state = changed(state, "adaptive-1", brackets=1.0, sort_digits=0.5)
    state = changed(state, "adaptive-2", brackets=1.0, sort_digits=0.25)
    state = changed(state, "adaptive", brackets=0.75, sort_digits=1.0)
    state = changed(state, "uniform", brackets=0.7, sort_digits=0.4)
    told = course_of(state).figures
    assert told["accuracy"].value == 0.75
    assert told["accuracy"].n == 48
    assert told["lead_over_uniform"].value == told["gain"].value == 0.75
    assert told["tokens_to_equal"].value == pytest.approx(4 / 12)  # 0.75 ≥ 0.55 after one of three
    assert told["forgetting"].value == pytest.approx(0.25)  # brackets
    assert figures.forgetting(course_of(state).courses["uniform"]) == 0.0
    never = changed(state, "uniform", brackets=1.0, sort_digits=1.0)
    assert "tokens_to_equal" not in course_of(never).figures


def test_items_are_measured_as_greedy_decoding_would(made) -> None:
    """Token by token on the adaptive model: the same verdict, also for answers that are its own."""
    home, state, _ = made
    context = Context.opened(state, Artifacts.of(home))
    module, tokenizer = context._module, context.text.tokenizer
    item = task_families.item("brackets", 1, 5, 5)
    assert item is not None
    (encoded,) = encode(tokenizer, [item])
    ids = [*encoded.prompt]
    with torch.no_grad():
        for _ in range(3):
            ids.append(int(module(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    own = tuple(ids[len(encoded.prompt) :])
    wrong = (*own[:-1], (own[-1] + 1) % 50)
    longer = EncodedItem((*encoded.prompt, 1, 2, 3), own)
    found = solved(
        module, [EncodedItem(encoded.prompt, own), longer, EncodedItem(encoded.prompt, wrong)]
    )
    assert (found[0], found[2]) == (True, False)
    assert encoded.answer[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(encoded.answer[:-1]).split() == item.answer.split()


def test_items_are_problems_that_others_can_measure(made) -> None:
    """In the format of item files, with a check that the right answer passes; slices are by digest."""
    home, state, out = made
    file = Context.opened(state, Artifacts.of(home)).text.folder / ITEMS
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    problems = list(data_items.from_rows(iter(rows)))
    assert all(isinstance(one, data_items.Problem) for one in problems)
    assert {(row["slice"], row["grade"]) for row in rows} == {
        (on, grade) for on in ("selection", "test") for grade in (0, 1)
    }
    for row in rows:
        assert slice_of_prompt(row["domain"], row["prompt"]) == row["slice"]
        item = Exercise(row["domain"], 1, row["prompt"], row["check"]["answer"])
        assert task_families.verify(item, item.answer)
    assert len(list((out / "items").glob("*.jsonl"))) == 2


def test_the_result_is_an_ordinary_folder(made, toys: Toys) -> None:
    _, state, out = made
    model = open_checkpoint(out / "model")
    assert digest(model.tensors()) == state.completed.models["model"].digest
    assert (out / "model" / "tokenizer.json").read_bytes() == (
        toys.base / "tokenizer.json"
    ).read_bytes()
    told = json.loads((out / "curriculum.json").read_text())
    assert told["models"] == {"model": digest(model.tensors())}
    assert len(told["course"]["uniform"]) == 4
    assert told["frontiers"]["adaptive"]["brackets"] == [1, 1, 2]  # opened
    kind = Curriculum()
    assert kind.requests.again(state.submitted).models[kind.main_role] == [str(toys.base)]


def test_a_model_is_found_by_name_and_tells_where_it_came_from(made) -> None:
    home, state, _ = made
    with closing(home.open_store()) as store:
        for name, wanted in (("c", "adaptive"), ("c:uniform-2", "uniform-2")):
            origin = model_origin.find(store, name)
            assert origin is not None
            assert origin.recipe_id == course_of(state).recipes[wanted].id
        rows, total = model_registry.listed(store)
    assert total == 1
    assert rows[0]["parameters"] == state.started.model.parameters
    places = [one.place for one in Curriculum().models.ancestry(state, "")]
    assert places == ["model", "adaptive-2", "adaptive-1", "start", "given"]
    with pytest.raises(NotFoundError, match=r"no model 'poetry'\. It has model, start, adaptive-1"):
        Curriculum().models.origin(state, (), "poetry")


def test_its_panels_and_its_terminal_show_the_arms(made) -> None:
    home, state, out = made
    shown = overview(state)
    assert [p.name for p in shown.panels] == [
        "arms", "course", "levels", "mix", "changes",
        "success-adaptive", "success-uniform", "success-easy-to-hard",
        "loss", "norm", "rate", "models",
    ]  # fmt: skip
    assert shown.head.result is not None
    assert shown.head.result.value == state.completed.figures["accuracy"].value
    course: Any = shown.panels[1]
    assert course.series[0].x == (0, 960, 1920, 2880)
    view = kind_views.of("curriculum")
    lines = [line for row in curriculum_runs.rows(home) if (line := view.unit(state, row))]
    assert any(line.startswith("measured start, test: ") for line in lines)
    assert "mix chosen: uniform, segment 2" in lines
    assert any("brackets placed to level 1" in line for line in lines)
    told = succeeds(home.folder, "show", "c", "--all")
    assert "Accuracy after as many tokens" in told.stdout
    assert "result: adaptive, after 2,880 tokens" in announced(state, out)
    assert "the arm adaptive, solves" in Curriculum().view.summary(state, ())[0]
    assert shown_early(state).panels == ()
    assert Curriculum().view.progress(state) == (36, 36)


@pytest.mark.slow
def test_everything_is_made_again_by_verify(made) -> None:
    """From nothing: optimisers are carried from segment to segment again."""
    home, state, out = made
    found, said = verified_again(home, state.run)
    assert found == []
    assert len([line for line in said if "as recorded" in line]) == 10
    found, alone = verified_again(home, state.run, "champion", None)
    assert (found, len(alone)) == ([], 1)
    assert in_folder(home, state, out) == []
    assert len(in_folder(home, state, out, models={"model": "0" * 64})) == 2


def test_a_model_is_written_again_where_its_folder_and_cache_are_gone(made, tmp_path) -> None:
    home, state, _ = made
    copied = Home(tmp_path / "home")
    shutil.copytree(home.folder, copied.folder, ignore=shutil.ignore_patterns("cache"))
    result = state.completed.models["model"]
    place = Curriculum().storage.materialise(
        copied, state, state.head, result.recipe_id, [tmp_path / "kept"]
    )
    assert digest(open_checkpoint(Path(place)).tensors()) == result.digest


@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("completed", figures={}), "the figures are not those"),
        (edit("completed", chosen="uniform"), "the chosen are not those"),
        (edit("mix_chosen", 0, mix={"brackets/1": 1.0}), "does not follow"),
        (edit("observed", 0, values={"brackets/1": 0.5}), "do not follow from its items"),
    ],
)
def test_forgeries_are_found(made, forgery, what: str) -> None:
    """Without a model: mixes and figures no longer follow from the events."""
    found = [str(one.message) for one in audit.audit(relinked(forgery(curriculum_runs.rows(made[0]))))]
    assert any(what in one for one in found), found


def test_arms_with_the_same_mixes_are_one_training(toys: Toys, tmp_path: Path) -> None:
    """Uniform and easy to hard are one recipe of a single level: trained and recorded once."""
    home = Home(tmp_path / "home")
    arms = ["uniform", "easy_to_hard"]
    curriculum_runs.submit(home, toys.base, levels=1, segments=2, arms=arms)
    state = curriculum_runs.finish(home)
    assert audit.audit(curriculum_runs.rows(home)) == []
    uniform, other = (course.segments for course in course_of(state).courses.values())
    assert [one.id for one in uniform] == [one.id for one in other]
    assert {arm: told.recipe_id for arm, told in state.completed.arms.items() if arm in arms} == (
        dict.fromkeys(arms, uniform[-1].id)
    )


def test_an_optimiser_is_carried_on_from_a_training_alone(made) -> None:
    """The start is no training: a recipe that carries on from it is refused, not begun without."""
    home, state, _ = made
    context = Context.opened(state, Artifacts.of(home))
    first = course_of(state).courses["adaptive"].segments[0]
    wrong = first.model_copy(update={"carries": True})
    with pytest.raises(ConfigError, match="is no training: it has no optimiser to carry"):
        context.maker.weights(wrong)


def test_a_training_begins_without_the_module_that_measures(
    made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a real model it has half a gigabyte; other models are made beside it."""
    home, state, _ = made
    context = Context.opened(state, Artifacts.of(home))
    course = course_of(state).courses["adaptive"]
    beside: list[bool] = []
    monkeypatch.setattr(Maker, "make", lambda self, task: beside.append("_module" in vars(context)))
    for recipe in (as_float32(state.started), course.segments[0]):
        assert context._module is context._module
        context.carry_out(MakeTask(recipe))
    assert beside == [True, False]
    assert context._module.training is False


def test_snapshots_of_earlier_segments_are_removed(made) -> None:
    """Optimiser and weights of each segment would fill a disk; the results are kept as weights."""
    home, state, _ = made
    cache = Artifacts.of(home)
    Curriculum().storage.keep(state, cache)
    assert list((cache.folder / "snapshots").glob("*/*")) == []


def test_a_forecast_tries_the_start_and_some_steps(made, tmp_path: Path) -> None:
    home, state, _ = made
    copied = copy_of(home, tmp_path)
    told = Curriculum().forecast(state.submitted, Artifacts.of(copied), tmp_path / "models")
    assert open_checkpoint(told.models["model"]).parameters == state.started.model.parameters
    assert_amounts(told)
    assert "by a part of some" in told.seconds.how


def test_a_forecast_counts_measurements_that_nothing_has_named_yet(
    made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script names its first measurement when the start model is made."""
    home, state, _ = made
    copied = copy_of(home, tmp_path)
    monkeypatch.setattr(Curriculum().work(), "measurement_seconds", lambda *_: 1_000.0)
    told = Curriculum().forecast(state.submitted, Artifacts.of(copied), tmp_path / "models")
    assert told.seconds.value is not None
    assert told.seconds.value > 1_000


def test_what_cannot_run_is_refused_before_any_work(toys: Toys, tmp_path: Path) -> None:
    model = {"model": [str(toys.base)]}

    def refused(error: type[Exception], match: str, models: Any = None, **settings: Any) -> None:
        data = settings.pop("data", ())
        asked = RunRequest("curriculum", {**curriculum_runs.QUICK, **settings}, models or model, data)
        with pytest.raises(error, match=match):
            submit.check(submit.plan(asked))

    refused(ConfigError, "a curriculum run is of one model: --model model=MODEL", {"model": []})
    refused(ConfigError, "takes no data", data=[str(tmp_path)])
    refused(ConfigError, "no task family 'poetry': there are addition", families=["poetry"])
    refused(ConfigError, "levels", levels=11)
    refused(ConfigError, r"brackets at level 2 has \d+ tokens: it needs a context of", context=8)
    refused(ConfigError, "are 2 steps of 4 windows of 60: too few for 3 segments", tokens=500)
    refused(ConfigError, "replay and trickle together must be below 1", replay=0.95)
    refused(ConfigError, "context is 999999, the model takes", context=999_999)


@pytest.mark.slow
def test_a_phase_of_a_pipeline_goes_on_with_its_input_if_nothing_is_gained(
    toys: Toys, tmp_path: Path
) -> None:
    """The toys solve nothing, before and after: a gain above zero is not reached."""
    home = Home(tmp_path)
    phase = {
        "name": "tasks",
        "kind": "curriculum",
        "models": {"model": str(toys.base)},
        "settings": {**curriculum_runs.QUICK, "arms": ["adaptive"], "segments": 1},
        "gates": [{"metric": "gain", "at_least": 0.01, "otherwise": "pass unchanged"}],
    }
    pipeline_runs.submit(home, [phase], test=[str(toys.data)])
    state = pipeline_runs.finish(home)
    assert state.status == "completed"
    verdicts = {gate.gate.metric: gate.verdict for gate in state.gates[1]}
    assert verdicts["gain"] == "pass unchanged"


def test_a_tokenizer_that_cannot_write_a_task_is_named() -> None:
    """A vocabulary of words and brackets, without digits: sorting digits is refused."""
    words = [*"()[]{}<>=", "close", "sort", "<end>", "<unknown>"]
    model = WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unknown>")
    core = Tokenizer(model)
    core.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", unk_token="<unknown>")
    settings = {**curriculum_runs.QUICK, "families": ["brackets"]}
    items.check_items(CurriculumConfig.model_validate(settings), tokenizer, 60)
    settings["families"] = ["brackets", "sort-digits"]
    with pytest.raises(SourceError, match="cannot write the tasks of family sort-digits"):
        items.check_items(CurriculumConfig.model_validate(settings), tokenizer, 60)


def test_a_step_that_does_not_fit_is_computed_in_parts(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are needed, with a note; they are pinned, and every segment has them."""
    whole = study_work.canary

    def canary(recipe: Train, *args: Any, **more: Any) -> tuple[str, float]:
        if recipe.batch // recipe.accumulation > 2:
            raise room.OutOfMemoryError("an allocation failed")
        return whole(recipe, *args, **more)

    monkeypatch.setattr(study_work, "canary", canary)
    home = Home(tmp_path / "home")
    curriculum_runs.submit(home, toys.base, arms=["uniform"], segments=1)
    state = curriculum_runs.finish(home)
    assert state.started.accumulation == 2
    assert "computed in 2 parts" in " ".join(state.started.warnings)
    assert [one.accumulation for one in course_of(state).courses["uniform"].segments] == [2]


def test_every_segment_is_watched(made) -> None:
    _, state, _ = made
    assert state.submitted.config.divergence == 12.0
    segments = (one for course in course_of(state).courses.values() for one in course.segments)
    assert {one.divergence for one in segments} == {12.0}
