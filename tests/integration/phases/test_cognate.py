"""Cognate runs in miniature, and the frozen presets' sizes."""

from __future__ import annotations

import errno
import io
import json
import shutil
from contextlib import closing
from copy import copy
from pathlib import Path

import pytest
import torch
from rich.console import Console

from agent_forge.cli import kind_views
from agent_forge.evaluation.data.builtin import corpus
from agent_forge.evaluation.training_text import own_texts
from agent_forge.phases.cognate import figures, recipes
from agent_forge.phases.cognate.script import Cognate
from agent_forge.phases.cognate.settings import KNOWN, PRESETS, PresetError
from agent_forge.phases.cognate.work import configuration
from agent_forge.runs.errors import (
    ConfigError,
    DataError,
    NotFoundError,
    RunFailedError,
    SourceError,
    UnavailableError,
)
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.panels.panels import Lines, Matrix
from agent_forge.runs.record.events import Failed
from agent_forge.runs.system.durations import duration
from agent_forge.studies.making.making import Advanced, MakingState
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.storage import inputs, model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete
from agent_forge.worker.queue.device_table import Hand
from testing.miniatures import cognate_runs
from testing.verification import rebuilt, verified_again
from testing.worlds.finished_run import FinishedTraining
from tests.integration.cli.test_forge import fails, succeeds

ROLES = ("base", "code", "math", "data")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_parameters_that_it_says(name: str) -> None:
    """Counted on a real model of that shape, tied head once."""
    from transformers import Qwen2ForCausalLM

    with torch.device("meta"):
        model = Qwen2ForCausalLM(configuration(PRESETS[name]))
    PRESETS[name].check(sum(p.numel() for p in model.parameters()))


@pytest.mark.parametrize("architecture", ["qwen2", "titans-mag"])
def test_another_vocabulary_changes_the_parameters_by_its_rows(architecture: str) -> None:
    """Counted on a real model of that shape."""
    from agent_forge.phases.cognate.settings import CognateConfig
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM

    settings = {"preset": "mini", "architecture": architecture, "vocabulary": 300}
    size = CognateConfig.model_validate(settings).size
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(configuration(size))
    size.check(sum(p.numel() for p in model.parameters()))
    assert size.vocabulary == 300


def test_the_25m_preset_is_within_five_percent_of_25_million() -> None:
    """The source documents' 25,083,528, their check of 5 %."""
    assert abs(PRESETS["25m"].parameters / 25_083_528 - 1) < 0.05


@pytest.mark.parametrize("name", ["small", "25m-wide"])
def test_presets_for_ternary_files_have_rows_of_whole_blocks(name: str) -> None:
    """llama.cpp's ternary types cut rows into blocks of 256; the formats for others pack four rows."""
    preset = PRESETS[name]
    assert preset.hidden % 256 == preset.intermediate % 256 == 0
    assert preset.hidden // preset.heads * preset.kv_heads % 4 == 0
    assert abs(PRESETS["25m-wide"].parameters / 25_083_528 - 1) < 0.05


def test_the_common_phase_is_at_least_half_of_a_specialists_training() -> None:
    """Branch-train-merge: otherwise merges fall out of the basin."""
    for preset in PRESETS.values():
        assert preset.base_tokens >= preset.specialist_tokens


@pytest.mark.parametrize("domain", ["code", "math", "data"])
def test_a_specialist_mix_adds_up_and_leans_to_its_domain(domain: str) -> None:
    for preset in PRESETS.values():
        mix = preset.specialist_mix(domain, preset.base_mix)
        assert sum(mix.values()) == pytest.approx(1)
        assert max(mix, key=lambda d: mix[d]) == domain


def test_a_specialist_learns_its_own_domain_also_where_the_base_does_not() -> None:
    """The base's mix has no multilingual text."""
    mix = PRESETS["tiny"].specialist_mix("multilingual", PRESETS["tiny"].base_mix)
    assert mix["multilingual"] == pytest.approx(PRESETS["tiny"].own_share)


def test_a_model_of_another_size_is_refused() -> None:
    with pytest.raises(PresetError, match="1,150,080"):
        PRESETS["tiny"].check(1)


def test_the_domains_that_settings_know_are_those_that_have_text() -> None:
    """Settings are pure: they import no corpus."""
    assert KNOWN == own_texts.KNOWN
    with pytest.raises(DataError, match="no text of it: it has code, math"):
        Cognate().plan(RunRequest("cognate", {"domains": ["code", "poetry"]}), Lookup())
    with pytest.raises(ConfigError, match="each domain once"):
        Cognate().settings.parse({"domains": ["code", "code"]})


@pytest.fixture(scope="module")
def made(
    finished_training: FinishedTraining, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Home, MakingState, Path]:
    """A finished run: (home, state, folder of the models)."""
    home, folder = finished_training(), tmp_path_factory.mktemp("cognate")
    state = cognate_runs.state(home)
    Cognate().write_result(home, state, folder / "models")
    return home, state, folder / "models"


def weights_of(state: MakingState) -> dict[str, str]:
    """Role → digest of the weights."""
    return {role: state.made[r.id].digest for role, r in Cognate().named(state).items()}


def test_a_recipe_says_everything(made) -> None:
    """A default that is left out would give one training two ids."""
    _, state, _ = made
    for optimiser in recipes.OPTIMISERS:
        config = Cognate().settings.parse({"preset": "mini", "optimiser": optimiser})
        submitted = state.submitted.model_copy(update={"config": config})
        for recipe in (
            recipes.base(submitted, state.started),
            *recipes.specialists(submitted, state.started).values(),
        ):
            assert complete(recipe) == recipe
    initial = recipes.initial(state.submitted, state.started)
    assert operations.complete(initial) == initial


def test_specialists_are_ordinary_folders_and_best_on_their_own_domain(made) -> None:
    """Each loads with transformers; the matrix says who is best where."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _, state, out = made
    for name in ROLES:
        model = AutoModelForCausalLM.from_pretrained(out / name)
        tokenizer = AutoTokenizer.from_pretrained(out / name)
        assert sum(p.numel() for p in model.parameters()) == 28_960
        assert tokenizer.decode(tokenizer.encode("x = 1\n")) == "x = 1\n"
        assert digest(open_checkpoint(out / name).tensors()) == weights_of(state)[name]
    assert "base_model: ../base" in (out / "code" / "README.md").read_text()
    found = figures.quality(Cognate().run(state))
    for name in ROLES[1:]:
        assert min(found, key=lambda m: found[m][name]) == name
    told = json.loads((out / "cognate.json").read_text())
    assert told["bits_per_byte"] == found
    assert told["models"] == weights_of(state)


def test_a_model_s_folder_says_how_it_was_made(made) -> None:
    """From the model back to its first weights, and by whom."""
    _, state, out = made
    told = json.loads((out / "code" / "training.json").read_text())
    assert (told["run"], told["role"], told["digest"]) == ("r", "code", weights_of(state)["code"])
    kinds = [(one["kind"], one.get("purpose")) for one in told["recipes"].values()]
    assert kinds == [("train", "code"), ("train", "base"), ("transform", None)]


def test_the_report_gives_the_line_the_norms_and_the_cosines(made) -> None:
    """Five losses a specialist from base to it; ends agree with the matrix's models."""
    _, state, _ = made
    found = figures.report(Cognate().run(state))
    assert set(found["line"]) == set(ROLES[1:])
    assert len({losses[0] for losses in found["line"].values()}) == 1
    for name, losses in found["line"].items():
        assert found["barrier"][name] == pytest.approx(figures.barrier(losses))
    assert all(0 < norm < 1 for norm in found["relative_norm"].values())
    assert list(found["cosine"]) == ["code,math", "code,data", "math,data"]
    assert all(-1 <= c <= 1 for c in found["cosine"].values())


def test_every_training_is_told_with_loss_and_norm(made) -> None:
    """At most a hundred points a segment, and the loss falls in the base's."""
    _, state, _ = made
    curves = Cognate().view.curves(state)
    assert set(curves) == set(ROLES)
    base = curves["base"]
    assert base[-1]["step"] == Cognate().trainings(state)["base"].upto
    assert base[-1]["loss"] < base[0]["loss"]
    assert all(point["norm"] > 0 and point["rate"] > 0 for point in base)


def test_items_fill_every_slice_and_never_repeat_training_text(made) -> None:
    """Split by file: a document is in one slice only."""
    from agent_forge.evaluation.data import items as data_items

    items = data_items.load([made[2] / "items"])
    assert {(i.domain, i.slice) for i in items} == {
        (d, s) for d in corpus.DOMAINS for s in ("train", "search", "selection", "test")
    }
    names = [i.id for i in items]
    assert len(names) == len(set(names))


def test_its_panels_show_what_its_log_has(made) -> None:
    """Curves, the matrix, the line, models, lineage; every figure is that of the events."""
    _, state, _ = made
    shown = overview(state)
    assert [panel.name for panel in shown.panels] == [
        *("loss", "speed", "norm", "rate", "quality"),
        *("lead-code", "lead-math", "lead-data", "line", "models", "lineage"),
    ]
    found = {panel.name: panel for panel in shown.panels}
    quality = found["quality"]
    assert isinstance(quality, Matrix)
    assert quality.columns == ROLES
    for domain, row in zip(quality.rows, quality.values, strict=True):
        assert row == tuple(figures.quality(Cognate().run(state))[role][domain] for role in ROLES)
    loss = found["loss"]
    assert isinstance(loss, Lines)
    assert [series.name for series in loss.series] == list(ROLES)
    assert shown.head.result is not None
    assert 0 < shown.head.result.value < 1
    early = type(state)()
    early.submitted, early.run = state.submitted, state.run
    assert overview(early).head.done == 0


def test_its_history_is_honest(made) -> None:
    home, state, _ = made
    assert audit.audit(cognate_runs.rows(home)) == []
    assert state.status == "completed"


def test_the_ancestors_of_a_specialist_reach_back_to_the_first_weights(made) -> None:
    home, state, _ = made
    told = succeeds(home.folder, "lineage", "r", "code")
    assert [line.split()[1] for line in told.stdout.splitlines()] == ["code", "base", "untrained"]
    assert (
        Cognate().models.recipe_id(state, weights_of(state)["code"])
        == Cognate().named(state)["code"].id
    )


def test_no_snapshot_of_an_ended_training_is_left(made) -> None:
    """Their results are in the cache; the optimiser's tensors are of no more use."""
    home, state, _ = made
    assert list(home.artifacts.glob("snapshots/*/*/model.safetensors")) == []
    cache = Artifacts.of(home)
    assert all(cache.files(digest) for digest in weights_of(state).values())


def test_base_and_specialists_are_in_the_registry(made) -> None:
    """With what was measured, and a specialist's base as its lineage."""
    from agent_forge.runs.lists import model_registry

    home, state, _ = made
    with closing(home.open_store()) as store:
        rows, total = model_registry.listed(store)
    assert total == 4
    found = {row["name"].removeprefix("r-"): row for row in rows}
    assert {role: row["kind"] for role, row in found.items()} == {
        role: "base" if role == "base" else "specialist" for role in ROLES
    }
    assert {role: row["digest"] for role, row in found.items()} == weights_of(state)
    assert found["code"]["lineage"] == [found["base"]["id"]]
    assert found["code"]["metrics"] == figures.quality(Cognate().run(state))["code"]


@pytest.mark.slow
@pytest.mark.smoke
def in_two_segments(state: MakingState) -> MakingState:
    """The state as if each training had been carried out in two segments."""
    found = copy(state)
    found.advanced = {}
    for stem, events in state.advanced.items():
        (event,) = events.values()
        half = len(event.curve) // 2
        middle = event.curve[half - 1].step
        first = event.model_copy(update={"step": middle, "curve": event.curve[:half]})
        then = event.model_copy(update={"begin": middle, "curve": event.curve[half:]})
        found.advanced[stem] = {middle: first, event.step: then}
    return found


def at_steps(state: MakingState, steps: dict[str, int]) -> MakingState:
    """The state as it was while its trainings had done so many steps."""
    found = copy(state)
    stems = {role: recipe.stem for role, recipe in Cognate().trainings(state).items()}
    found.advanced = {
        stems[role]: {s: e for s, e in state.advanced[stems[role]].items() if s <= upto}
        for role, upto in steps.items()
    }
    return found


def test_a_terminal_shows_speed_and_time_left_while_it_trains(made) -> None:
    """Eighty columns: tokens a second and the time left, of the base half of the way."""
    state = in_two_segments(made[1])
    base = Cognate().trainings(state)["base"]
    half = min(state.advanced[base.stem])
    state = at_steps(state, {"base": half})
    state.completed, state.made, state.answers = None, {}, {}
    left = Cognate().view.outlook(state, None).eta_s or 0.0
    event = state.advanced[base.stem][half]
    ahead = sum(r.upto for r in Cognate().trainings(state).values()) - half
    assert left == pytest.approx(ahead * event.seconds / half)
    view, time = kind_views.of("cognate"), "2026-01-01T00:00:00+00:00"
    console = Console(record=True, width=80, height=24, file=io.StringIO())
    frame = view.frame(state, time, time, [Hand("here", "make/x")], ())
    console.print(view.draw(frame, 80, 23, False))
    text = " ".join(console.export_text().split())
    assert f"training at {event.tokens / event.seconds:,.0f} tokens/s" in text
    assert f"{duration(left)} left at most" in text


def test_a_tracker_gets_every_point_once_in_ascending_steps(made) -> None:
    """Also while several devices train specialists at once: W&B takes no earlier step afterwards."""
    whole = in_two_segments(made[1])
    kind, trainings = Cognate(), Cognate().trainings(whole)
    ends = {role: sorted(whole.advanced[recipe.stem]) for role, recipe in trainings.items()}
    early = {role: steps[0] for role, steps in ends.items()}
    last = {role: steps[-1] for role, steps in ends.items()}
    moments = (
        {"base": early["base"]},
        {"base": last["base"]},
        {"base": last["base"], "code": last["code"]},
        {**early, "base": last["base"]},
        {**early, "base": last["base"], "data": last["data"]},
        last,
    )
    sent: list[tuple[int, dict]] = []
    for steps in moments:
        sent += kind.tracking.rows(at_steps(whole, steps), sent[-1][0] if sent else -1)
    at = [step for step, _ in sent]
    assert at == sorted(set(at))
    assert [row["step"] for _, row in sent] == at
    losses = [row[f"{role}/loss"] for role in trainings for _, row in sent if f"{role}/loss" in row]
    assert losses == [point["loss"] for points in kind.view.curves(whole).values() for point in points]
    speeds = [row for _, row in sent if any(key.endswith("tokens_per_second") for key in row)]
    assert len(speeds) == 4, "a row each: both segments of the base, then of all specialists at once"


@pytest.mark.parametrize("role", ROLES)
def test_a_name_of_the_registry_means_one_of_a_run_s_models(made, role: str) -> None:
    """The run has several, and none of them is its result."""
    home, state, _ = made
    with closing(home.open_store()) as store:
        found = model_origin.find(store, f"r-{role}")
    assert found
    assert found.digest == weights_of(state)[role]


@pytest.mark.slow
def test_segments_change_no_bit_and_no_lineage(made, tmp_path: Path, monkeypatch) -> None:
    """Another home, and segments of 40 steps of 234 and 97."""
    mine, state, _ = made
    home = cognate_runs.share_text(mine, Home(tmp_path))
    monkeypatch.setenv("FORGE_SEGMENT_STEPS", "40")
    cognate_runs.submit(home, "other")
    other = cognate_runs.finish(home, "other")
    assert other.started.segment < state.started.segment
    assert sum(map(len, other.advanced.values())) > 2 * sum(map(len, state.advanced.values()))
    assert weights_of(other) == weights_of(state)
    assert other.lineage_digest() == state.lineage_digest()
    assert figures.quality(Cognate().run(other)) == figures.quality(Cognate().run(state))


@pytest.mark.slow
def test_models_are_sources_by_role_also_after_folders_and_caches_are_gone(
    made, tmp_path: Path
) -> None:
    """`RUN:ROLE` stands where a folder does; what is missing is trained again, bit for bit."""
    from agent_forge.weights.storage.model_origin import find

    home, state, _ = made
    copied = Home(tmp_path / "home")
    shutil.copytree(home.folder, copied.folder)
    shutil.rmtree(copied.artifacts)
    store = copied.open_store()
    try:
        origin = find(store, "r:code")
        assert find(store, "r/code") == origin
        with pytest.raises(SourceError, match=r"several models: say which, .*base, code, math, data"):
            find(store, "r/champion")
        with pytest.raises(NotFoundError, match="base, code, math, data"):
            Cognate().models.origin(state, (), "poetry")
        with pytest.raises(NotFoundError, match="say which"):
            Cognate().models.origin(state, (), "")
    finally:
        store.close()
    assert origin is not None
    assert origin.recipe_id is not None
    place = Path(
        Cognate().storage.materialise(copied, state, state.head, origin.recipe_id, [tmp_path / "kept"])
    )
    assert digest(open_checkpoint(place).tensors()) == weights_of(state)["code"]
    assert (place / "tokenizer.json").exists()


def test_what_was_measured_of_a_model_has_an_interval_and_its_items(made) -> None:
    """For the page of a model: by domain and together, on the slice that was measured."""
    _, state, _ = made
    seen = Cognate().run(state).seen["code"]
    measured = Cognate().models.measurements(state, weights_of(state)["code"])
    assert [m.domain for m in measured] == ["", *sorted(seen.values)]
    assert {(m.name, m.slice) for m in measured} == {("bits per byte", "selection")}
    for one in measured:
        known = seen.values.get(one.domain, sum(seen.values.values()) / len(seen.values))
        assert one.figure.value == pytest.approx(known)
        assert one.figure.low < one.figure.value < one.figure.high
        some = seen.items.get(one.domain) or [x for items in seen.items.values() for x in items]
        assert one.figure.n == len(some)
    assert Cognate().models.measurements(state, "0" * 64) == []


def test_a_specialist_that_is_not_the_best_fails_and_says_so(made) -> None:
    """Props for the search are not wanted."""
    _, state, _ = made
    task = Cognate().observations(state)[1]
    worse = state.answers[task.key].model_copy(update={"values": dict.fromkeys(ROLES, 99.0)})
    after = type(state)()
    after.__dict__.update(state.__dict__)
    after.answers, after.completed = {**state.answers, task.key: worse}, None
    after.memory = {}
    decision = Cognate().due(after)
    (fact,) = decision.facts
    assert isinstance(fact.event, Failed)
    assert "the code specialist has 99" in fact.event.reason


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"recipe_id": "0" * 64}, "another recipe"),
        ({"step": 7}, "other steps"),
        ({"begin": 1}, "other steps"),
    ],
)
def test_an_altered_segment_does_not_answer_its_task(made, change, complaint: str) -> None:
    _, state, _ = made
    recipe = Cognate().trainings(state)["base"]
    event = state.advanced[recipe.stem][recipe.upto]
    assert isinstance(event, Advanced)
    before = type(state)()
    before.__dict__.update(state.__dict__)
    before.advanced, before.completed, before.memory = {}, None, {}
    initial = recipes.initial(state.submitted, state.started).id
    before.made = {initial: state.made[initial]}
    (task,) = Cognate().due(before).tasks
    assert Cognate().validate_answer(before, task, event) is None
    assert complaint in (Cognate().validate_answer(before, task, event.model_copy(update=change)) or "")


def test_figures_must_follow_from_their_items(made) -> None:
    """An altered score is found without any model."""
    _, state, _ = made
    task = Cognate().observations(state)[0]
    event = state.answers[task.key]
    assert Cognate().validate_answer(state, task, event) is None
    values = {**event.values, "code": event.values["code"] - 0.1}
    altered = event.model_copy(update={"values": values})
    assert "do not follow" in (Cognate().validate_answer(state, task, altered) or "")


@pytest.mark.slow
def test_everything_is_trained_again_by_verify_and_forgeries_are_found(made) -> None:
    home, state, _ = made
    found, said = verified_again(home, state.run)
    assert found == []
    assert len([line for line in said if "as recorded" in line]) == 4
    recipe = Cognate().trainings(state)["base"]
    last = state.advanced[recipe.stem][recipe.upto]
    worse = last.curve[-1].model_copy(update={"loss": 0.5})
    for forgery, told in (
        ({"digest": "0" * 64}, "the log says 000000000000"),
        ({"optimiser": "0" * 64}, "the optimiser's state"),
        ({"curve": (*last.curve[:-1], worse)}, "the losses"),
    ):
        forged = type(state)()
        forged.__dict__.update(state.__dict__)
        altered = {recipe.upto: last.model_copy(update=forgery)}
        forged.advanced = {**state.advanced, recipe.stem: altered}
        (found,) = rebuilt(home, forged, [recipe.id])
        assert (found.level, found.check) == ("error", "weights")
        assert told in found.message


@pytest.mark.slow
def test_another_number_of_threads_is_refused_at_resume(made, tmp_path: Path, monkeypatch) -> None:
    """It may change the last bit; both numbers are said."""
    home = cognate_runs.share_text(made[0], Home(tmp_path))
    cognate_runs.submit(home)
    cognate_runs.carry_until(home, lambda state: state.started is not None)
    monkeypatch.setenv("FORGE_THREADS", "3")
    with pytest.raises(UnavailableError, match="threads is 3, not 1"):
        cognate_runs.finish(home)
    assert cognate_runs.rows(home)[-1].type == "started"


@pytest.mark.slow
def test_a_budget_ends_a_run_and_a_fork_goes_on(made, tmp_path: Path) -> None:
    from agent_forge.worker.commands import fork

    home = cognate_runs.share_text(made[0], Home(tmp_path))
    cognate_runs.submit(home, max_device_hours=1e-9)
    with pytest.raises(RunFailedError, match="max_device_hours is spent"):
        cognate_runs.finish(home)
    with closing(home.open_store()) as store:
        place = next(i for i, r in enumerate(cognate_runs.rows(home), 1) if r.type == "made")
        with pytest.raises(ConfigError, match="seed cannot change"):
            fork.plan(store, "r", place, None, {"seed": 3})
        longer = fork.plan(store, "r", place, None, {"max_device_hours": 1.0})
        name = fork.fork(store, longer)
    cognate_runs.carry_until(home, lambda s: bool(s.advanced), name)
    assert not cognate_runs.state(home, name).ended


def test_a_folder_with_something_else_in_it_is_not_touched(tmp_path: Path) -> None:
    """Exit through an error, the file still there."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    words = ("cognate", "--preset", "mini", "--out", str(tmp_path / "out"))
    assert "holds other things" in fails(tmp_path / "home", 6, *words)
    assert (tmp_path / "out" / "mine.txt").read_text() == "keep"


def test_a_folder_that_cannot_be_made_is_found_before_training(tmp_path: Path) -> None:
    """Not after minutes."""
    (tmp_path / "file").write_text("")
    words = ("cognate", "--preset", "mini", "--out", str(tmp_path / "file" / "models"))
    assert "not writable" in fails(tmp_path / "home", 3, *words)


@pytest.mark.slow
def test_the_command_prints_the_report_and_goes_on_with_its_run(tmp_path: Path) -> None:
    """Progress on stderr, the matrix on stdout; a second time, the same run and no training."""
    words = ("cognate", "--preset", "mini", "--out", str(tmp_path / "m"), "--domains", "code")
    result = succeeds(tmp_path / "home", *words)
    assert "tokens/s" in result.stderr
    assert "bits per byte" in result.stdout
    home, run = Home(tmp_path / "home"), result.stderr.split()[1]
    before = cognate_runs.rows(home, run)
    again = succeeds(home.folder, *words)
    assert again.stdout == result.stdout
    assert cognate_runs.rows(home, run) == before


@pytest.mark.slow
def test_muon_trains_a_base_that_has_learned_more_than_adamw_s(made, tmp_path: Path) -> None:
    """From the same tokens; the recipe says by which optimiser."""
    home, state, _ = made
    cognate_runs.submit(cognate_runs.share_text(home, Home(tmp_path)), optimiser="adamw")
    base = recipes.BASE
    other = cognate_runs.carry_until(
        Home(tmp_path), lambda s: s.started is not None and Cognate().named(s)[base].id in s.made
    )
    curves = [Cognate().view.curves(s)[base][-1]["loss"] for s in (state, other)]
    assert curves[0] < curves[1]
    assert Cognate().trainings(state)[base].optimiser.name == "mugrokfast@1"
    assert Cognate().trainings(other)[base].optimiser.name == "adamw@1"


@pytest.mark.slow
def test_a_text_that_gives_too_few_tokens_ends_the_run_with_both_numbers(tmp_path: Path) -> None:
    """Arithmetic alone has fewer than 512 different pieces."""
    words = ("cognate", "--preset", "mini", "--out", str(tmp_path / "m"), "--domains", "math")
    told = fails(tmp_path / "home", 2, *words)
    assert "the text gives 423 tokens, and the tokenizer needs 512" in told
    assert "--set vocabulary=423" in told


@pytest.mark.slow
def test_a_full_disk_during_a_snapshot_costs_nothing(made, tmp_path: Path, monkeypatch) -> None:
    """The error says so; with room again the run goes on and ends the same."""
    from agent_forge.weights.training import snapshots

    mine, state, _ = made
    home = cognate_runs.share_text(mine, Home(tmp_path))
    cognate_runs.submit(home)
    cognate_runs.carry_until(home, lambda now: len(now.made) == 1)
    before = len(cognate_runs.rows(home))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "save_file", full)
        with pytest.raises(UnavailableError, match="No space left"):
            cognate_runs.finish(home)
    assert [row.type for row in cognate_runs.rows(home)[before:]] == []
    assert list(home.artifacts.glob("snapshots/*/*")) == []
    assert weights_of(cognate_runs.finish(home)) == weights_of(state)


@pytest.mark.slow
def test_a_segment_that_two_devices_do_is_one_result(made, tmp_path: Path) -> None:
    """Each has its own cache; the second's event does not contradict the first's."""
    from agent_forge.phases.cognate.work import Context

    home = cognate_runs.share_text(made[0], Home(tmp_path / "a"))
    other = cognate_runs.share_text(made[0], Home(tmp_path / "b"))
    cognate_runs.submit(home)
    state = cognate_runs.carry_until(home, lambda now: len(now.made) == 1)
    (task,) = Cognate().due(state).tasks
    first, second = (Context.opened(state, Artifacts.of(h)).carry_out(task) for h in (home, other))
    assert isinstance(first, Advanced)
    assert Cognate().verification.agrees(state, first, second)
    assert not Cognate().verification.agrees(
        state, first, first.model_copy(update={"digest": "0" * 64})
    )


def test_its_items_are_found_by_their_address(made) -> None:
    """So another run that measures on them gets them made again when their copies are gone."""
    home, state, _ = made
    cache = Artifacts(home.artifacts, home=home)
    file = Cognate().storage.items_file(state, cache)
    assert inputs.rebuilt_items(home, cache, file.parent.name) == file
    assert inputs.rebuilt_items(home, cache, "0" * 64) is None
