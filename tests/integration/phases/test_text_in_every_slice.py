"""Every domain that a run measures has text in every slice, or the start of any kind says what lacks.

An experts run ended in `KeyError: 'code'` and could not go on; a bitnet run chose the best rounding by
one domain of two, and did not say so. 400,000 characters of built-in code have none for selection.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation.data.slices import SLICES
from agent_forge.evaluation.training_text import own_texts
from agent_forge.phases.cognate.settings import PRESETS, TITANS
from agent_forge.runs import kinds
from agent_forge.runs.errors import DataError
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from testing.models.toys import Toys


def settings_of(kind: str) -> dict[str, Any]:
    """Return name → setting of a kind of run."""
    config: Any = kinds.of(kind).submitted.model_fields["config"].annotation
    return config.model_fields


#: Kinds with a setting `domains`, and what a run of theirs needs beside a model.
TAKING = sorted(kind for kind in kinds.KINDS if "domains" in settings_of(kind))
NEEDED: dict[str, dict[str, Any]] = {
    "bake": {"prompts": ["Be brief.\n"]},
    "experts": {"neutral": "math"},
}
#: Of these, kinds with a setting for the characters of built-in text.
SIZED = sorted(kind for kind in TAKING if "characters" in settings_of(kind))


def plan(kind: str, toys: Toys, data: tuple[str, ...] = (), **settings: Any) -> Any:
    """Plan a run of the toy base; nothing is started."""
    role = "base" if kind == "cognate" else "model"
    config = {**NEEDED.get(kind, {}), **settings}
    data = data or (("calls:8",) if kind == "tune" else ())
    return kinds.of(kind).plan(RunRequest(kind, config, {role: [str(toys.base)]}, data), Lookup())


def test_all_kinds_that_train_take_domains() -> None:
    """A new kind is found by itself."""
    assert {"bake", "baking", "bitnet", "cognate", "experts", "quietstar", "student"} <= set(TAKING)


@pytest.mark.parametrize("kind", SIZED)
def test_built_in_text_without_a_domain_in_a_slice_is_refused_before_any_work(
    kind: str, toys: Toys
) -> None:
    """The error says what there is, and a number of characters that is enough."""
    words = (
        "domain code has no text in the slice selection: 36 texts (33 train, 2 search, 0 selection, "
        "1 test), 403,453 characters in all. It is built-in text: set characters to 800000 or more."
    )
    domains = ["code", "math", "prose"]
    with pytest.raises(DataError, match=re.escape(words)):
        plan(kind, toys, characters=400_000, domains=domains)
    made = plan(kind, toys, characters=800_000, domains=domains)
    assert list(made.config.domains) == domains


@pytest.mark.parametrize("kind", sorted({*TAKING} - {"tune"}))
def test_own_text_without_a_domain_in_a_slice_is_refused_before_any_work(
    kind: str, toys: Toys, tmp_path: Path
) -> None:
    """Beside a domain that has enough. Data of `tune` are conversations, as the next test has it."""
    rows = [{"text": f"text {n}"} for n in range(400)]
    (tmp_path / "enough.jsonl").write_text("\n".join(map(json.dumps, rows)))
    few = [{"text": "a text", "slice": slice_} for slice_ in SLICES if slice_ != "selection"]
    (tmp_path / "news.jsonl").write_text("\n".join(map(json.dumps, few)))
    words = (
        r"domain news has no text in the slice selection: 3 texts \(1 train, 1 search, 0 selection, "
        r"1 test\), 18 characters in all\. Give more text"
    )
    with pytest.raises(DataError, match=words):
        plan(kind, toys, tuple(str(tmp_path / f"{name}.jsonl") for name in ("enough", "news")))


def test_conversations_of_a_domain_lack_no_slice(toys: Toys, tmp_path: Path) -> None:
    """Beside a domain that has enough: a domain would be trained on, and measured nowhere."""
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    few = [{"messages": turns, "slice": "train"}]
    (tmp_path / "news.jsonl").write_text("\n".join(map(json.dumps, few)))
    planned = plan("tune", toys, ("calls:8", str(tmp_path / "news.jsonl")), lora_rank=4)
    with pytest.raises(DataError, match="domain news has 1 conversations, and none in the slice sel"):
        kinds.of("tune").check(planned)


def test_built_in_text_beside_the_users_is_looked_at_too(toys: Toys, tmp_path: Path) -> None:
    """The neutral domain of experts is built-in if the user's data lacks it."""
    rows = [{"text": f"text {n}"} for n in range(400)]
    (tmp_path / "law.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match="domain code has no text in the slice selection"):
        plan("experts", toys, (str(tmp_path / "law.jsonl"),), neutral="code", characters=400_000)


@pytest.mark.parametrize("preset", [*PRESETS.values(), *TITANS.values()], ids=lambda one: one.name)
def test_the_text_of_every_preset_has_every_domain_in_every_slice(preset: Any) -> None:
    """They have no setting for the characters."""
    own_texts.check(0, preset.characters, own_texts.KNOWN)


def test_text_of_which_nothing_is_predicted_is_no_domain_left_out(toys: Toys) -> None:
    """A domain whose only text gives no token was missing from the measurement, in silence."""
    from agent_forge.evaluation.data.items import Text as TextItem
    from agent_forge.evaluation.training_text.kept_text import TextFolder

    text = TextFolder(toys.base)
    text.__dict__["texts"] = [
        TextItem(id=f"{d}-{s}", domain=d, slice=s, text="a b c" if d == "a" else "d")
        for d in ("a", "b")
        for s in SLICES
    ]

    class Tokenizer:
        """One token a word; none of the word d."""

        is_fast, eos_token_id, unk_token_id = True, None, None

        def __call__(self, texts: list[str], **how: Any) -> dict[str, Any]:
            words = [[(m.start(), m.end()) for m in re.finditer("[abc]", one)] for one in texts]
            return {"input_ids": [[1] * len(one) for one in words], "offset_mapping": words}

    text.__dict__["tokenizer"] = Tokenizer()
    with pytest.raises(DataError, match="the text of domain b in the slice test is too short"):
        text.held_out(16, "test")
