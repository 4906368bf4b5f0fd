"""`forge mergeability`, and its part of `forge check`, as a user meets them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from agent_forge.evomerge.tasks import score
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.sources import resolve
from testing.models import toy_models
from testing.models.toys import Toys
from tests.integration.cli.test_forge import call, fails, succeeds


def words(toys: Toys, *more: str, count: int = 3) -> tuple[str, ...]:
    sources = map(str, toys.sources[:count])
    return ("mergeability", *sources, "--base", str(toys.base), "--text", str(toys.data), *more)


def test_what_is_measured_is_what_others_measure(toys: Toys, tmp_path: Path) -> None:
    """Cosines by whole tensors; the loss of an end by `forge score`'s own evaluation."""
    result = succeeds(tmp_path, *words(toys, "--json", "--context", "64", "--tokens", "100000"))
    found = json.loads(result.stdout)
    base, *models = (open_checkpoint(folder).tensors() for folder in (toys.base, *toys.sources))
    flat = [
        sum(float((model[n].double() - base[n].double()).square().sum()) for n in base)
        for model in models
    ]
    size = sum(float(x.double().square().sum()) for x in base.values())
    assert found["weights"]["norms"] == pytest.approx([math.sqrt(x / size) for x in flat])
    assert [line["from"] for line in found["lines"]][:3] == ["base"] * 3
    assert len(found["points"]) == 23
    assert found["forecast"]["answer"] in ("yes", "no", "open")
    assert sum(found["tokens"].values()) <= 100_000
    model = resolve(str(toys.sources[0]))
    items = score_items(toys)
    whole_score = score.score(model, items, "search", score.resident(model), 64)
    rates = [sum(o.nll) / sum(o.tokens) for o in whole_score.outcomes.values() if o.tokens]
    end = next(p["loss"] for p in found["points"] if p["shares"] == [1.0, 0.0, 0.0])
    assert end == pytest.approx(sum(rates) / len(rates), rel=1e-5)


def score_items(toys: Toys) -> list:
    from agent_forge.evaluation.loading import load_items

    return load_items((str(toys.data),))


def test_the_table_is_one_screen_wide(toys: Toys, tmp_path: Path) -> None:
    result = succeeds(tmp_path, *words(toys, "--context", "64", "--tokens", "512"))
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("loss of this text: ") for line in lines)
    assert "about" in result.stderr  # it says how long it takes before it begins


def test_weights_alone_need_no_text(toys: Toys, tmp_path: Path) -> None:
    command = words(toys, "--weights-only", "--json")
    found = json.loads(call(tmp_path, *command).stdout)
    assert "points" not in found
    assert len(found["weights"]["pairs"]) == 3


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"count": 1}, "two or more models are compared: give another one"),
        ({"more": ("--tokens", "64")}, "and an interval needs 4: more --tokens"),
        ({"more": ("--slice", "test", "--text", "nowhere.jsonl")}, "does not exist"),
    ],
)
def test_what_cannot_be_compared_is_refused(toys: Toys, tmp_path: Path, changes, what: str) -> None:
    more = changes.get("more", ())
    assert what in fails(tmp_path, 2, *words(toys, *more, count=changes.get("count", 3)))


def test_models_of_another_shape_are_refused(toys: Toys, tmp_path: Path) -> None:
    other, _ = toy_models.family(tmp_path / "other", count=1, hidden_size=32)
    command = ("mergeability", str(toys.sources[0]), str(other), "--base", str(toys.base))
    assert "sources must agree on shapes" in fails(tmp_path, 2, *command, "--weights-only")
    assert "Missing option '--base'" in fails(tmp_path, 2, "mergeability", str(toys.base))


def test_check_compares_the_weights_of_small_models(toys: Toys, tmp_path: Path) -> None:
    """And says what it left out; without a base there is nothing to compare with."""
    models = ("check", "--base-models", ",".join(map(str, toys.sources)), "--data", str(toys.data))
    with_base = (*models, "--base-model", str(toys.base), "--set", "context=64")
    result = succeeds(tmp_path, *with_base)
    assert "same sign" in result.stdout
    assert "losses along the lines between them were not measured" in result.stderr
    found = json.loads(call(tmp_path, *with_base, "--json").stdout)
    assert len(found["mergeability"]["weights"]["norms"]) == 3
    result = call(tmp_path, *models, "--set", "context=64")
    assert "mergeability was not measured: it is of models with a base" in result.stderr
