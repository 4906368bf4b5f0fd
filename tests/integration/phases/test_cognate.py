"""Training in miniature: a preset of seconds, and the frozen presets' sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from phases.cognate import create, presets, report, training
from phases.cognate.errors import CognateError, PresetError
from phases.cognate.model import check_size, configuration, new_model
from phases.cognate.presets import PRESETS, TINY
from runs.errors import UnavailableError

#: Seconds of training: the machinery is real, the models are poor.
MINIATURE = TINY.model_copy(
    update={
        "name": "miniature",
        "parameters": 28_960,
        "vocabulary": 512,
        "hidden": 32,
        "layers": 2,
        "heads": 2,
        "kv_heads": 1,
        "intermediate": 32,
        "context": 64,
        "batch": 4,
        "base_tokens": 60_000,
        "specialist_tokens": 25_000,
        "base_rate": 1e-2,
        "specialist_rate": 5e-3,
        "characters": 1_200_000,
    }
)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_parameters_that_it_says(name: str) -> None:
    """Counted on a real model of that shape, tied head once."""
    from transformers import Qwen2ForCausalLM

    with torch.device("meta"):
        model = Qwen2ForCausalLM(configuration(PRESETS[name]))
    check_size(model.parameters(), PRESETS[name])


def test_the_25m_preset_is_within_five_percent_of_25_million() -> None:
    """The source documents' 25,083,528, their check of 5 %."""
    assert abs(PRESETS["25m"].parameters / 25_083_528 - 1) < 0.05


def test_the_common_phase_is_at_least_half_of_a_specialists_training() -> None:
    """Branch-train-merge: otherwise merges fall out of the basin."""
    for preset in PRESETS.values():
        assert preset.base_tokens >= preset.specialist_tokens


def test_a_specialist_mix_adds_up_and_leans_to_its_domain() -> None:
    """0.7 of its own, the rest as in the common phase."""
    mix = TINY.specialist_mix("math")
    assert sum(mix.values()) == pytest.approx(1)
    assert mix["math"] == pytest.approx(0.7 + 0.3 * TINY.base_mix["math"])


def test_a_specialist_learns_its_own_domain_also_where_the_base_does_not() -> None:
    """By hand: three tenths of the base's mix, seven of its own."""
    mix = TINY.specialist_mix("multilingual")
    assert mix.pop("multilingual") == pytest.approx(0.7)
    assert mix == pytest.approx({d: 0.3 * share for d, share in TINY.base_mix.items()})


def test_a_model_of_another_size_is_refused() -> None:
    """A preset is a promise."""
    wrong = MINIATURE.model_copy(update={"parameters": 1})
    with pytest.raises(PresetError, match="the model has 28,960"):
        new_model(wrong, 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    """(folder, report, progress) of a miniature training."""
    out = tmp_path_factory.mktemp("cognate") / "models"
    progress: list[training.Progress] = []
    return out, create.create(out, MINIATURE, 0, lambda m: None, progress.append), progress


def test_specialists_are_ordinary_folders_and_best_on_their_own_domain(made) -> None:
    """Each loads with transformers; the matrix says who is best where."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out, found, _ = made
    for name in ("base", "code", "math", "data"):
        model = AutoModelForCausalLM.from_pretrained(out / name)
        tokenizer = AutoTokenizer.from_pretrained(out / name)
        assert sum(p.numel() for p in model.parameters()) == 28_960
        assert tokenizer.decode(tokenizer.encode("x = 1\n")) == "x = 1\n"
    assert "base_model: ../base" in (out / "code" / "README.md").read_text()
    for name in ("code", "math", "data"):
        scores = {model: row[name] for model, row in found.bits_per_byte.items()}
        assert min(scores, key=lambda m: scores[m]) == name
    assert json.loads((out / "cognate.json").read_text()) == found.model_dump()


def test_the_report_gives_the_line_the_norms_and_the_cosines(made) -> None:
    """Five losses a specialist from base to it; ends agree with the matrix's models."""
    found = made[1]
    assert set(found.line) == {"code", "math", "data"}
    starts = {losses[0] for losses in found.line.values()}
    assert len(starts) == 1
    for name, losses in found.line.items():
        assert found.barrier[name] == pytest.approx(report.barrier(losses))
    assert all(0 < norm < 1 for norm in found.relative_norm.values())
    assert all(-1 <= c <= 1 for c in found.cosine.values())
    text = "\n".join(report.lines(found))
    assert "bits per byte" in text
    assert "cosines" in text


def test_progress_tells_loss_and_speed(made) -> None:
    """Of every phase, and the loss falls in the first."""
    progress = made[2]
    assert [p.phase for p in progress if p.step == p.steps] == ["base", "code", "math", "data"]
    base = [p.loss for p in progress if p.phase == "base"]
    assert base[-1] < base[0]
    assert all(p.tokens_per_second > 0 for p in progress)


def test_items_fill_every_slice_and_never_repeat_training_text(made) -> None:
    """Split by file: a document is in one slice only."""
    from evaluation.data import items as data_items
    from evaluation.data.builtin import corpus

    items = data_items.load([made[0] / "items"])
    assert {(i.domain, i.slice) for i in items} == {
        (d, s) for d in corpus.DOMAINS for s in ("train", "search", "selection", "test")
    }
    names = [i.id for i in items]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_the_same_seed_trains_the_same_models(made, tmp_path) -> None:
    """Bit for bit, on one machine."""
    from weights.checkpoint import digest, open_checkpoint

    create.create(tmp_path / "again", MINIATURE, 0, lambda m: None, lambda p: None)
    for name in ("base", "code"):
        one, two = (open_checkpoint(f / name).tensors() for f in (made[0], tmp_path / "again"))
        assert digest(one) == digest(two)


def test_a_barrier_is_a_rise_above_the_straight_line() -> None:
    """(1, 2, 3, 2, 1): the middle is 2 above; a straight line has none."""
    assert report.barrier([1, 2, 3, 2, 1]) == pytest.approx(2)
    assert report.barrier([4, 3, 2, 1, 0]) == pytest.approx(0)
    assert report.barrier([4, 2, 1, 0.5, 0]) < 0


def test_a_specialist_that_is_not_the_best_fails_and_says_so(made) -> None:
    """Props for the search are not wanted."""
    worse = made[1].model_copy(deep=True)
    worse.bits_per_byte["code"]["code"] = 99.0
    with pytest.raises(CognateError, match="the code specialist has 99"):
        report.check(worse)


def test_a_folder_with_something_else_in_it_is_not_touched(tmp_path: Path) -> None:
    """Exit through an error, the file still there."""
    from cli.main import forge

    (tmp_path / "mine.txt").write_text("keep")
    result = CliRunner().invoke(forge, ["cognate", "--out", str(tmp_path)])
    assert isinstance(result.exception, CognateError)
    assert "not empty" in str(result.exception)
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_a_folder_that_cannot_be_made_is_found_before_training(tmp_path: Path) -> None:
    """Not after minutes."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="cannot be written"):
        create.check_folder(tmp_path / "file" / "models")


@pytest.mark.slow
def test_the_command_prints_the_report(monkeypatch, tmp_path) -> None:
    """Progress on stderr, the matrix on stdout."""
    from cli.main import forge

    monkeypatch.setitem(presets.PRESETS, "tiny", MINIATURE)
    result = CliRunner().invoke(forge, ["cognate", "--out", str(tmp_path / "m")])
    assert result.exit_code == 0, result.output
    assert "tokens/s" in result.stderr
    assert "bits per byte" in result.stdout
