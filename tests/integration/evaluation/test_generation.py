"""Replies of a tiny model: the same as transformers alone, cut where they should end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from agent_forge.evaluation.backends import generation
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import packing
from agent_forge.evaluation.data.items import from_rows
from agent_forge.evaluation.data.outcomes import Draw
from agent_forge.evaluation.data.packing import PackedProblem
from agent_forge.evaluation.evaluate import Judge, evaluate
from agent_forge.runs.errors import UnavailableError
from agent_forge.weights.folders import checkpoint
from testing.models import toy_models
from testing.models.toy_tensors import texts

CONTEXT = 64


def posed(tokenizer: Any, *prompts: str, **fields: Any) -> list[PackedProblem]:
    """Problems of these prompts."""
    check = {"kind": "exact", "answer": "x"}
    rows = [
        {"id": f"p{i}", "domain": "d", "slice": "test", "prompt": p, "check": check, **fields}
        for i, p in enumerate(prompts)
    ]
    return packing.pack(from_rows(rows), tokenizer, 512)["test"]["d"].problems


PROMPTS = ("one", "a somewhat longer prompt than that", "2 + 2 =", "def f(x):\n    ", "z")


def plain(folder: Path, tokenizer: Any, prompt: str, limit: int) -> list[int]:
    """Greedy tokens, one forward pass each, no cache, nothing else in the batch."""
    alone: Any = AutoModelForCausalLM.from_pretrained(folder / "base").eval()
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    start = len(ids)
    with torch.no_grad():
        for _ in range(limit):
            ids.append(int(alone(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == tokenizer.eos_token_id:
                break
    return ids[start:]


def test_replies_are_the_most_likely_tokens(
    folder: Path, resident: ResidentModel, tokenizer: PreTrainedTokenizerFast
):
    """Prompts of several lengths together, against one by one without cache or padding."""
    found = resident.replies(posed(tokenizer, *PROMPTS, max_tokens=12), tokenizer)
    for prompt, reply in zip(PROMPTS, found, strict=True):
        expected = plain(folder, tokenizer, prompt, 12)
        assert reply == tokenizer.decode(expected, skip_special_tokens=True)
    assert len(set(found)) > 1


@pytest.mark.parametrize(("many", "rows"), [(True, [8, 7]), (False, [1] * 15)])
def test_a_large_vocabulary_leaves_room_for_many_replies(
    resident: ResidentModel,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
    many: bool,
    rows: list[int],
) -> None:
    """Only the last token's logits are made; runs from before had one prompt a pass."""
    passes, continued = list[int](), resident.continued

    def counted(ids: Any, *rest: Any) -> Any:
        passes.append(len(ids))
        return continued(ids, *rest)

    monkeypatch.setattr(resident, "continued", counted)
    monkeypatch.setattr(resident, "many_replies", many)
    monkeypatch.setattr(resident, "vocabulary", 10**6)
    problems = posed(tokenizer, *["a"] * 15, max_tokens=480)
    written = resident.replies(problems, tokenizer)
    assert passes == rows
    assert len(set(written)) == 1


def test_replies_to_tasks_are_decoded_alone(tokenizer: PreTrainedTokenizerFast):
    """Some decoders drop a first blank: ours keeps it, lm-evaluation-harness does not."""

    class Dropping:
        def decode(self, ids: list[int], **how: Any) -> str:
            return tokenizer.decode(ids, **how).removeprefix(" ")

    said = tokenizer.encode(" 4", add_special_tokens=False)
    plain, task = (posed(tokenizer, "2 + 2 =", encoding=e)[0] for e in ("plain", "harness"))
    reading = generation._Reading([plain, task], Dropping(), frozenset(), 0)
    reading(torch.tensor([said, said]), None)
    assert reading.replies == [" 4", "4"]


def test_a_reply_ends_before_its_stop(resident: ResidentModel, tokenizer: PreTrainedTokenizerFast):
    """At the first occurrence of any of them, and without it."""
    (whole,) = resident.replies(posed(tokenizer, PROMPTS[0], max_tokens=16), tokenizer)
    stop = whole[len(whole) // 2 :][:2]
    asked = posed(tokenizer, PROMPTS[0], max_tokens=16, stop=["never there", stop])
    (cut,) = resident.replies(asked, tokenizer)
    assert cut == whole[: whole.find(stop)]
    assert stop


def test_a_reply_is_as_long_as_it_may_be(resident: ResidentModel, tokenizer: PreTrainedTokenizerFast):
    """Neighbours with other limits do not matter."""
    lengths = []
    for limit in (1, 5):
        (reply,) = resident.replies(posed(tokenizer, "z", max_tokens=limit), tokenizer)
        lengths.append(reply)
    short, long = posed(tokenizer, "z", max_tokens=1), posed(tokenizer, "z", max_tokens=5)
    assert resident.replies([*long, *short], tokenizer) == lengths[::-1]
    assert lengths[1].startswith(lengths[0])


def test_the_end_token_ends_a_reply(
    resident: ResidentModel, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
):
    """Whatever the model likes best is made the end: nothing is said."""
    ids = torch.tensor([tokenizer.encode("z", add_special_tokens=False)])
    favourite = int(resident.logits(ids)[0, -1].argmax())
    resident.config.eos_token_id = [favourite]
    assert favourite in generation.end_tokens(resident.config, tokenizer)
    assert resident.replies(posed(tokenizer, "z", max_tokens=9), tokenizer) == [""]


def test_sampling_settings_of_the_folder_do_not_count(
    resident: ResidentModel, tokenizer: PreTrainedTokenizerFast
):
    """Many chat models ship temperature and top-p; a measurement is greedy."""
    asked = posed(tokenizer, *PROMPTS, max_tokens=8)
    before = resident.replies(asked, tokenizer)
    resident.module.generation_config.do_sample = True
    resident.module.generation_config.temperature = 5.0
    assert resident.replies(asked, tokenizer) == before


def test_evaluating_problems_gives_scores_in_order(
    folder: Path, resident: ResidentModel, tokenizer: PreTrainedTokenizerFast
):
    """The model's own reply planted as the answer of one of two problems."""
    (said,) = resident.replies(posed(tokenizer, "one", max_tokens=8), tokenizer)
    rows: list[dict[str, Any]] = [
        {
            "id": f"p{i}",
            "domain": "d",
            "slice": "test",
            "prompt": "one",
            "max_tokens": 8,
            "check": {"kind": "exact", "answer": answer},
        }
        for i, answer in enumerate(["something else", said.strip() or "?", "neither"])
    ]
    items = [*from_rows(rows), *texts(*toy_models.texts()[:1])]
    data = packing.pack(items, tokenizer, CONTEXT)["test"]
    draws = {"d": Draw(windows=(0,), questions=(), problems=(1, 2))}
    weights = checkpoint.open_checkpoint(folder / "base").tensors()
    resident.load(weights)
    found = evaluate(resident, data, draws, Judge(tokenizer)).outcomes["d"]
    assert found.solved == (1.0, 0.0)
    assert found.unscored == {}
    assert len(found.bytes) == 1
    assert found.bytes[0] > 0
    again = evaluate(resident, data, draws, Judge(tokenizer)).outcomes["d"]
    assert again == found


def test_a_verifier_that_fails_is_in_the_outcomes_with_the_item(
    folder: Path,
    resident: ResidentModel,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
):
    """Never a silent zero."""
    from agent_forge.evaluation.verifiers import verifier
    from agent_forge.evaluation.verifiers.program import Rating

    failed = Rating(0.0, "scorer x raised KeyError", scored=False)
    monkeypatch.setattr(verifier.exact, "verify", lambda check, reply: failed)
    items = [posed(tokenizer, "one", max_tokens=2)[0].problem, *texts(*toy_models.texts()[:1])]
    data = packing.pack(items, tokenizer, CONTEXT)["test"]
    draws = {"d": Draw(windows=(0,), questions=(), problems=(0,))}
    weights = checkpoint.open_checkpoint(folder / "base").tensors()
    resident.load(weights)
    found = evaluate(resident, data, draws, Judge(tokenizer)).outcomes["d"]
    assert found.solved == (0.0,)
    assert found.unscored == {"p0": "scorer x raised KeyError"}


def test_without_a_sandbox_an_evaluation_is_put_off(
    folder: Path,
    resident: ResidentModel,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
):
    """Another machine may have one; a score without it would be another number."""
    monkeypatch.setattr("sys.platform", "darwin")
    tests = {"kind": "program", "tests": ["assert f(1) == 2"]}
    asked = posed(tokenizer, "def f(x):\n", max_tokens=2, check=tests)
    with pytest.raises(UnavailableError, match="on Linux only"):
        Judge(tokenizer).judge(resident, asked)


def test_lengths_do_not_change_the_batches_of_others(
    resident: ResidentModel, tokenizer: PreTrainedTokenizerFast
):
    """Same group, any order: every reply stays with its problem."""
    asked = posed(tokenizer, *PROMPTS, max_tokens=6)
    forward = resident.replies(asked, tokenizer)
    order = np.asarray([3, 0, 4, 1, 2])
    shuffled = resident.replies([asked[i] for i in order], tokenizer)
    assert [shuffled[i] for i in np.argsort(order)] == forward
