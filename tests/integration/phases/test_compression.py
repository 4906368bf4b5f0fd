"""A compression of a toy model: whole, decoded elsewhere, verified, forged, killed, and refused."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from safetensors.torch import load_file, save_file

from agent_forge import load
from agent_forge.api.app import create
from agent_forge.api.options import Options
from agent_forge.phases.compression import figures, panels, recipes
from agent_forge.phases.compression.recipes import CompressionState, Encoded, Packed
from agent_forge.phases.compression.work import Context
from agent_forge.runs import kinds
from agent_forge.runs.errors import (
    ConfigError,
    ConflictError,
    DataError,
    NotFiniteError,
    RunFailedError,
)
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.panels.panels import Units
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import accounts
from agent_forge.worker.commands import submit as validate
from testing.miniatures import compression_runs
from testing.miniatures.compression_runs import SETTINGS, TEXTS, finish, replayed, state, submit
from testing.models.toys import Toys
from testing.verification import assert_amounts
from tests.integration.cli.test_forge import call, succeeds
from tests.integration.kinds.test_forgeries import edit, relinked


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compression_runs.data(tmp_path_factory.mktemp("compressed"))


@pytest.fixture(scope="module")
def home(toys: Toys, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a compression `c` of the first source."""
    made = Home(tmp_path_factory.mktemp("home"))
    submit(made, toys.sources[0], data)
    finish(made)
    return made


@pytest.fixture(scope="module")
def taught(
    toys: Toys, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Home, CompressionState, Path]:
    """A compression `t` of the first source and a student that is half as wide: (…, student)."""
    folder = tmp_path_factory.mktemp("taught")
    small, home = compression_runs.student(folder), Home(folder / "home")
    submit(home, toys.sources[0], data, "t", [small])
    return home, finish(home, "t"), small


def test_every_matrix_is_tried_at_every_setting_and_mixtures_choose_among_them(home: Home) -> None:
    done = state(home)
    names = [one.name for one in done.started.settings]
    assert names == ["rtn-4", "gptq-2", "uniform-1", "plain-16", "plain-32"]
    matrices = [m.name for m in done.started.matrices]
    assert "model.embed_tokens.weight" in matrices
    assert not any("norm" in name for name in matrices)
    encoded = [e for e in done.made.values() if isinstance(e, Encoded)]
    assert len(encoded) == 5 * len(matrices)
    mixed = [p for p in figures.points(replayed(done)) if p.series == "mixture"]
    assert mixed
    for point in mixed:
        assert len(set(point.assignment)) > 1
        assert set(point.assignment) <= set(names)


def test_mixtures_are_compared_with_single_settings_document_by_document(home: Home) -> None:
    """The pair is of at most as many bytes; the interval is that of documents resampled for both."""
    done = state(home)
    pairs = figures.rivals(replayed(done))
    assert pairs
    assert {pair.single.series for pair in pairs} <= {"rtn", "gptq", "uniform"}
    mixed = [p for p in figures.points(replayed(done)) if p.series == "mixture"]
    rng = np.random.default_rng(0)
    for pair in pairs:
        assert pair.single.packed
        assert pair.mixture.packed
        most = pair.single.packed.bytes
        fitting = [p.packed.bytes for p in mixed if p.packed and p.packed.bytes <= most]
        assert pair.mixture.packed.bytes == max(fitting)
        assert pair.mixture.bits is not None
        assert pair.single.bits is not None
        assert pair.difference.value == pair.mixture.bits - pair.single.bits
        both = [figures.observed(replayed(done), one.recipe_id) for one in (pair.mixture, pair.single)]
        found = []
        for _ in range(1000):
            rates = np.zeros(2)
            for domain, count in done.started.selection.items():
                drawn = rng.integers(0, count, count)
                for place, event in enumerate(both):
                    assert event is not None
                    nats, sizes = np.array(event.items[domain]), np.array(event.sizes[domain])
                    rates[place] += nats[drawn].sum() / np.log(2) / sizes[drawn].sum() / 2
            found.append(rates[0] - rates[1])
        low, high = np.quantile(found, [0.025, 0.975])
        scale = max(high - low, 1e-9)
        assert pair.difference.low == pytest.approx(low, abs=0.1 * scale)
        assert pair.difference.high == pytest.approx(high, abs=0.1 * scale)
    assert [one["setting"] for one in panels.report(replayed(done))["mixtures"]] == [
        pair.single.name for pair in pairs
    ]
    shown = {panel.name: panel for panel in kinds.of("compression").view.panels(done)}
    table = shown["mixtures"]
    assert isinstance(table, Units)
    assert len(table.rows) == len(pairs)
    assert [row[4] for row in table.rows] == [-pair.difference.value for pair in pairs]


@pytest.mark.slow
def test_without_text_to_calibrate_on_a_run_says_so(
    toys: Toys, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after its start: what follows does not matter here."""
    items = tmp_path / "texts.jsonl"
    kept = [text for text in TEXTS if text["slice"] != "train"]
    items.write_text("".join(json.dumps(text) + "\n" for text in kept), "utf-8")
    other = Home(tmp_path / "home")
    submit(other, toys.sources[0], items)
    monkeypatch.setattr(Context, "_encoded", Mock(side_effect=ConfigError("it ends here")))
    with pytest.raises(ConfigError, match="it ends here"):
        finish(other)
    (note,) = state(other).started.warnings
    assert "calibrate" in note
    assert state(other).started.calibrated == 0
    assert not state(home).started.warnings


def test_the_table_has_the_bytes_of_files(home: Home, toys: Toys, tmp_path: Path) -> None:
    """The chosen file, with its tokenizer beside the weights, decodes to the recorded weights."""
    done = state(home)
    succeeds(home, "export", "c", "--out", str(tmp_path / "out"))
    file, chosen = tmp_path / "out" / "model.forge", done.completed.chosen
    made = done.made[chosen.recipe_id]
    assert isinstance(made, Packed)
    assert made.bytes < file.stat().st_size  # companions and recipe come on top
    succeeds(home, "decompress", str(file), str(tmp_path / "plain"))
    assert digest(open_checkpoint(tmp_path / "plain").tensors()) == chosen.digest
    module, weights = load(file), load_file(tmp_path / "plain" / "model.safetensors")
    assert all(torch.equal(p, weights[name]) for name, p in module.named_parameters())
    succeeds(home, "verify", str(tmp_path / "out"))


@pytest.mark.slow
def test_it_is_verified_and_made_again(home: Home) -> None:
    told = succeeds(home, "verify", "c", "--rebuild", "all", "--recompute")
    assert f"{state(home).completed.chosen.digest[:12]} as recorded" in told.output
    shown = call(home, "show", "c", "--all")
    assert "Size and quality" in shown.output


@pytest.mark.slow
def test_a_run_that_goes_on_with_the_chosen_model(home: Home, toys: Toys) -> None:
    """RUN is the decoded model, a source like any other; its origin is the given one."""
    told = succeeds(home, "lineage", "c")
    assert "source0" in told.output
    succeeds(home, "export", "c:rtn-4", "--format", "gguf", "--out", str(home.folder / "m.gguf"))


@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("packed", 0, bytes=1), "does not end with the events"),
        (edit("encoded", 0, bytes=1), ""),
        (edit("completed", figures={}), "figures are not those"),
    ],
)
def test_forged_bytes_and_figures_are_found(home: Home, forgery, what: str) -> None:
    """Without a model: the choice no longer follows from the events."""
    rows = compression_runs.rows(home)
    found = [str(one.message) for one in audit.audit(relinked(forgery(rows)))]
    assert any(what in one for one in found), found
    assert found


def test_a_file_that_was_altered_is_refused(home: Home, tmp_path: Path) -> None:
    succeeds(home, "export", "c", "--out", str(tmp_path / "out"))
    file = tmp_path / "out" / "model.forge"
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    told = call(home, "verify", str(tmp_path / "out"))
    assert told.exit_code != 0
    assert "altered" in told.output


@pytest.mark.slow
def test_a_budget_chooses_the_best_within_it_and_one_that_nothing_meets_names_the_nearest(
    home: Home, toys: Toys, data: Path, tmp_path: Path
) -> None:
    sizes = [p.packed.bytes for p in figures.points(replayed(state(home))) if p.packed]
    submit(home, toys.sources[0], data, "budget", budget=sizes[1])
    done = finish(home, "budget")
    within = [p for p in figures.points(replayed(done)) if p.packed and p.packed.bytes <= sizes[1]]
    best = min(within, key=lambda p: (p.bits or 0.0, p.name))
    assert done.completed.chosen.point == best.name
    submit(home, toys.sources[0], data, "tiny", budget=700, mixtures=0)
    with pytest.raises(RunFailedError, match=r"no point fits into 700 bytes\. The nearest is"):
        finish(home, "tiny")


def test_what_it_costs_is_tried_before_it_is_begun(home: Home, toys: Toys, tmp_path: Path) -> None:
    """One matrix at every setting, some documents; the stand-in has the model's shape."""
    asked, kind = state(home).submitted, kinds.of("compression")
    told = kind.forecast(asked, Artifacts(tmp_path / "cache"), tmp_path / "there")
    assert_amounts(told)
    shapes = open_checkpoint(toys.sources[0]).shapes
    assert open_checkpoint(told.models["model"]).shapes == shapes


@pytest.mark.slow
def test_a_forecast_counts_a_student_too(taught, tmp_path: Path) -> None:
    """Its encodings and measurements come on top of the given model's."""
    _, done, _ = taught
    cache = Artifacts(tmp_path / "cache")
    told = kinds.of("compression").forecast(done.submitted, cache, tmp_path / "there")
    parameters = [one.source.parameters for one in recipes.subjects(done.started)]
    assert len(parameters) == 2
    assert told.memory.value == 12 * sum(parameters)
    matrices = sum(len(one.matrices) for one in recipes.subjects(done.started))
    passes = 2 * (len(done.started.settings) + done.submitted.config.mixtures) + matrices + 4
    assert f"{passes} measurements" in told.seconds.how


@pytest.mark.slow
def test_a_codec_that_does_not_take_a_matrix_leaves_it_plain(
    toys: Toys, data: Path, tmp_path: Path
) -> None:
    """A weight of 100,000 is beyond float16: that matrix has 32 bits where others have 16."""
    large = compression_runs.with_weight(toys.sources[0], tmp_path / "large", "q_proj", 1e5)
    home = Home(tmp_path / "home")
    submit(home, large, data, settings=["rtn-4"], mixtures=0)
    done = finish(home)
    (refused,) = figures.fallbacks(replayed(done)).items()
    assert refused[0].endswith("q_proj.weight at plain-16")
    assert "too large for float16" in refused[1]
    (point,) = [p for p in figures.points(replayed(done)) if p.name == "plain-16"]
    assert sorted(point.assignment).count("plain-32") == 1
    assert audit.audit(compression_runs.rows(home)) == []


@pytest.mark.slow
def test_a_student_s_points_stand_on_the_same_front(taught) -> None:
    """Retention and ratio are against the given model; bits a weight are of the student's own."""
    _, done, small = taught
    found = {point.name: point for point in figures.points(replayed(done))}
    assert {"uniform-1", "small:uniform-1", "plain-16", "small:plain-16"} <= set(found)
    assert any(name.startswith("small:mixture-") for name in found)
    kept = [point.name for point in figures.front(figures.points(replayed(done)))]
    assert kept[0].startswith("small:")
    run = replayed(done)
    given, other = (figures.bits_of(run, one) for one in recipes.subjects(done.started))
    assert given is not None
    rows = {row["point"]: row for row in panels.rows(run)}
    row, point = rows["small:uniform-1"], found["small:uniform-1"]
    assert point.packed is not None
    assert row["model"] == "small"
    assert row["retention"] == given / point.bits
    assert row["ratio"] == done.started.float32_bytes / point.packed.bytes
    parameters = open_checkpoint(small).parameters
    assert row["bits_per_weight"] == 8 * point.packed.bytes / parameters
    assert given != other


def test_no_domain_loses_more_than_is_allowed(home: Home) -> None:
    """Rises by hand, from what was observed; the mean over domains may hide one."""
    run = replayed(state(home))
    before = figures.observed(run, recipes.source(run.started))
    assert before is not None
    worst, points = {}, figures.points(run)
    for point in points:
        seen = figures.observed(run, point.recipe_id)
        assert seen is not None
        worst[point.name] = max(seen.values[d] / before.values[d] - 1 for d in before.values)
        assert point.regression == worst[point.name]
    bound = sorted(worst.values())[len(worst) // 2]
    run.settings = run.settings.model_copy(update={"retention": 0.01, "regression": bound})
    chosen = figures.choose(run)
    assert chosen is not None
    assert chosen.name == next(p.name for p in points if worst[p.name] <= bound)
    assert chosen.name != points[0].name
    run.settings = run.settings.model_copy(update={"regression": -1.0})
    assert figures.choose(run) is None
    nearest = min(worst, key=lambda name: worst[name])
    told = f"in every domain. The nearest is {nearest}: {worst[nearest]:.2%} in one of them."
    assert told in figures.unmet(run)


@pytest.mark.slow
def test_a_run_with_students_is_asked_for_again_with_them(taught, home: Home) -> None:
    """`POST /runs` took one model, and the page would have left the students out."""
    mine, done, small = taught
    with closing(mine.open_store()) as store:
        accounts.add(store, "ada", "submitter")
        head = {"Authorization": f"Bearer {accounts.issue(store, 'ada')[1]}"}
    app = create(mine, Options((Path("/"),)))
    with TestClient(app, "http://127.0.0.1", headers=head) as client:
        body = client.get("/runs/t/asked").json()
        assert body["models"].keys() == {"model", "students"}
        assert body["models"]["students"] == [str(small)]
        checked = client.post("/runs/check", json=body)
        assert checked.status_code == 200, checked.text
        made = client.post("/runs", json=body)
        assert made.status_code == 201, made.text
        other = {**body, "models": {**body["models"], "teachers": [str(small)]}}
        refused = client.post("/runs", json=other).json()
        assert refused["detail"] == (
            "a compression has no models 'teachers'; the roles are: model, students."
        )
    again = state(mine, made.json()["run"]).submitted
    assert again.model == done.submitted.model
    assert again.students == done.submitted.students
    assert again.config == done.submitted.config


@pytest.mark.slow
def test_the_policy_may_choose_a_student(taught, tmp_path: Path) -> None:
    """Its file decodes to the student's architecture; its origin is the student."""
    home, done, _ = taught
    chosen = done.completed.chosen
    assert chosen.point.startswith("small:")
    succeeds(home, "export", "t", "--out", str(tmp_path / "out"))
    module = load(tmp_path / "out" / "model.forge")
    assert module.config.hidden_size == 8
    card = (tmp_path / "out" / "README.md").read_text()
    assert "The file holds the student small: " in card
    succeeds(home, "verify", str(tmp_path / "out"))
    lineage = call(home, "lineage", "t")
    assert "the model small" in lineage.output
    gguf = ("--format", "gguf", "--out", str(tmp_path / "m.gguf"))
    succeeds(home, "export", "t:small:rtn-4", *gguf)
    assert "small:rtn-4" in call(home, "show", "t", "--all").output


@pytest.mark.slow
def test_a_compression_with_a_student_is_verified_and_made_again(taught) -> None:
    home, done, _ = taught
    assert audit.audit(compression_runs.rows(home, "t")) == []
    told = succeeds(home, "verify", "t", "--rebuild", "all", "--recompute")
    assert f"{done.completed.chosen.digest[:12]} as recorded" in told.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("packed", -1, bytes=1), "does not end with the events"),
        (edit("encoded", -1, bytes=1), ""),
        (edit("started", students=[]), ""),
    ],
)
def test_forged_events_of_a_student_are_found(taught, forgery, what: str) -> None:
    """The last encoding and the last file are the student's."""
    rows = compression_runs.rows(taught[0], "t")
    found = [str(one.message) for one in audit.audit(relinked(forgery(rows)))]
    assert any(what in one for one in found), found


def test_a_student_that_does_not_fit_is_refused_before_any_work(
    toys: Toys, data: Path, tmp_path: Path
) -> None:
    """As large as the given model, with another tokenizer, or given twice."""
    given, small = str(toys.sources[0]), compression_runs.student(tmp_path)

    def asked(*students: Path) -> None:
        models = {"model": [given], "students": list(map(str, students))}
        validate.check(validate.plan(RunRequest("compression", SETTINGS, models, [str(data)])))

    with pytest.raises(ConfigError, match="student source1 has 12,240 parameters, not fewer"):
        asked(toys.sources[1])
    other = Path(shutil.copytree(small, tmp_path / "other"))
    words = json.loads((other / "tokenizer.json").read_text())
    words["model"]["merges"].pop()
    (other / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ConfigError, match="student other has another tokenizer"):
        asked(small, other)
    home = Home(tmp_path / "home")
    submit(home, toys.sources[0], data, "twice", [small, small])
    with pytest.raises((ConfigError, RunFailedError), match=r"student small\+2 has the weights"):
        finish(home, "twice")


def test_bad_input_is_named_before_any_work(toys: Toys, data: Path, tmp_path: Path) -> None:
    one = str(toys.sources[0])
    with pytest.raises(ConfigError, match="no models 'base'"):
        validate.plan(RunRequest("compression", {}, {"base": [one]}, []))
    with pytest.raises(ConfigError, match="of one model"):
        validate.plan(RunRequest("compression", {}, {"model": [one, one]}, []))
    with pytest.raises(ConfigError, match="there is no setting 'mp3'"):
        validate.plan(RunRequest("compression", {"settings": ["mp3"]}, {"model": [one]}, []))
    small = RunRequest("compression", {"budget": 1}, {"model": [one]}, [str(data)])
    with pytest.raises(ConfigError, match="no file fits into 1 bytes"):
        validate.check(validate.plan(small))
    lacking = tmp_path / "lacking.jsonl"
    lacking.write_text(json.dumps({**TEXTS[0], "slice": "test"}) + "\n")
    wanted = RunRequest("compression", SETTINGS, {"model": [one]}, [str(lacking)])
    with pytest.raises(DataError, match="no text in the slice selection"):
        validate.check(validate.plan(wanted))


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (None, "lacks the tensor model.norm.weight"),
        (torch.ones(3), r"model.norm.weight has the shape \[3\], and config.json describes"),
        (torch.ones(16, dtype=torch.int32), "model.norm.weight holds torch.int32"),
    ],
)
def test_tensors_that_are_not_the_models_are_named_before_any_work(
    toys: Toys, data: Path, tmp_path: Path, tensor: torch.Tensor | None, said: str
) -> None:
    """They were found when every matrix had been encoded at every setting."""
    broken = Path(shutil.copytree(toys.sources[0], tmp_path / "broken"))
    weights = load_file(broken / "model.safetensors")
    name = "model.norm.weight"
    changed = {k: v for k, v in weights.items() if k != name}
    changed |= {} if tensor is None else {name: tensor}
    save_file(changed, broken / "model.safetensors", metadata={"format": "pt"})
    wanted = RunRequest("compression", SETTINGS, {"model": [str(broken)]}, [str(data)])
    with pytest.raises(ConfigError, match=said):
        validate.check(validate.plan(wanted))


def test_a_model_without_a_tokenizer_is_refused(toys: Toys, data: Path, tmp_path: Path) -> None:
    """Transformers makes one for which every text is empty: nothing was measured."""
    bare = Path(shutil.copytree(toys.sources[0], tmp_path / "bare"))
    for file in bare.glob("token*"):
        file.unlink()
    wanted = RunRequest("compression", SETTINGS, {"model": [str(bare)]}, [str(data)])
    with pytest.raises(ConfigError, match="bare has no tokenizer"):
        validate.check(validate.plan(wanted))


def test_the_result_never_replaces_the_model_that_is_read(
    toys: Toys, data: Path, tmp_path: Path
) -> None:
    """A folder of trained models counts as a result, which may be replaced: the model was gone."""
    model = Path(shutil.copytree(toys.sources[0], tmp_path / "models" / "base"))
    (tmp_path / "models" / "cognate.json").write_text("{}")
    words = ("compress", str(model), "--data", str(data), "--detach", "--out")
    for out in (model, tmp_path / "models"):
        told = call(Home(tmp_path / "home"), *words, str(out))
        assert isinstance(told.exception, ConflictError), told.output
        assert "which the run reads" in str(told.exception)
    succeeds(Home(tmp_path / "home"), *words, str(tmp_path / "new"))


def test_a_model_with_a_number_that_is_none_is_refused(toys: Toys, data: Path, tmp_path: Path) -> None:
    nan = float("nan")
    broken = compression_runs.with_weight(toys.sources[0], tmp_path / "broken", "down_proj", nan)
    home = Home(tmp_path / "home")
    submit(home, broken, data)
    with pytest.raises((NotFiniteError, RunFailedError), match="down_proj"):
        finish(home)


@pytest.mark.slow
def test_a_terminal_is_told_how_far_it_is_and_what_was_chosen(
    toys: Toys, data: Path, tmp_path: Path
) -> None:
    words = ("compress", str(toys.sources[0]), "--data", str(data), "--out", str(tmp_path / "out"))
    given = ("--set", "settings=rtn-4,rtn-3", "--set", "context=16", "--set", "mixtures=1")
    told = succeeds(Home(tmp_path / "home"), *words, "--retention", "0.5", *given)
    assert re.search(r"task \d+ done, \d+ in all", told.output)
    assert "measured rtn-3, " in told.output
    assert "times smaller than float32; on the test slice it keeps" in told.output
    assert f"next: forge decompress {tmp_path / 'out' / 'model.forge'} DIR" in told.output
    assert (tmp_path / "out" / "model.forge").is_file()
    both = call(Home(tmp_path / "home"), *words, "--retention", "0.5", "--budget", "2MB")
    assert "give a budget or a retention" in str(both.exception)
