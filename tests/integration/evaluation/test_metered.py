"""A measurement that says how far it is has the figures of one that does not."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from agent_forge.evaluation import evaluate as metered
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import outcomes, packing
from agent_forge.evaluation.data.items import from_rows
from agent_forge.evaluation.evaluate import Judge, Metered, evaluate

PROBLEM = {"prompt": "2 + 2 =", "check": {"kind": "exact", "answer": "4"}, "max_tokens": 4}
QUESTION = {"prompt": "2 + 2 =", "choices": [" 4", " 22 or so"], "answer": 0}


def rows() -> list[dict[str, object]]:
    """Text, questions and problems of two domains; windows of several lengths."""
    bodies = [{"text": f"{number} times one is {number}. " * 20} for number in range(5)]
    kinds = [*bodies, *[QUESTION] * 3, *[PROBLEM] * 3]
    return [
        {"id": f"{domain}{number}", "domain": domain, "slice": "test", **body}
        for domain in ("one", "two")
        for number, body in enumerate(kinds)
    ]


@pytest.mark.parametrize("tokens", [None, 128])
def test_figures_are_the_same_and_the_share_done_is_told(
    tokens: int | None,
    resident: ResidentModel,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
):
    """To the bit: the batches are those of the model itself, whatever their size."""
    monkeypatch.setattr(metered, "QUIET", 0.0)
    monkeypatch.setattr(metered, "MESSAGES", 1e9)
    monkeypatch.setattr(resident, "batch_tokens", tokens)
    data = packing.pack(from_rows(rows()), tokenizer, 64)["test"]
    draws = outcomes.whole({domain: packed.pool() for domain, packed in data.items()})
    judge = Judge(tokenizer)
    messages: list[str] = []
    model = Metered(resident, data, tokenizer, messages.append)
    assert model.positions == resident.positions
    measured = evaluate(model, data, draws, judge).outcomes
    assert measured == evaluate(resident, data, draws, judge).outcomes
    shares = [int(words.partition("%")[0]) for words in messages[1:]]
    assert "by a probe of each kind of item" in messages[0]
    assert len(shares) > 4
    assert shares == sorted(shares)
    assert shares[-1] <= 100


def test_a_probe_beside_other_programs_gives_a_range() -> None:
    """Two threads that worked for 30 s each, and waited as long for a processor."""
    assert metered.forecast(60.0, 60.0).startswith("about 1 min 00 s, ")
    assert metered.forecast(80.0, 60.0).startswith("about 1 min 20 s, ")
    assert metered.forecast(120.0, 60.0).startswith("1 min 00 s to 2 min 00 s, ")


def test_short_work_says_nothing(
    resident: ResidentModel, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(metered, "QUIET", 3600.0)
    data = packing.pack(from_rows(rows()), tokenizer, 64)["test"]
    draws = outcomes.whole({domain: packed.pool() for domain, packed in data.items()})
    messages: list[str] = []
    evaluate(Metered(resident, data, tokenizer, messages.append), data, draws, Judge(tokenizer))
    assert messages == []
