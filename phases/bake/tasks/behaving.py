"""Verdicts on greedy replies of a bake's models, by the checks of its prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.backends.generation import end_tokens
from evaluation.backends.local_backend import ResidentModel
from evaluation.trajectories.sampling import greedy
from evaluation.verifiers.form import FormVerifier
from phases.bake.behaviour import PROMPTED, UNPROMPTED, group
from phases.bake.config import BakeConfig
from weights.training.trajectories import Trajectory
from weights.training.windows import Ids


def verdicts(
    model: ResidentModel,
    tokenizer: Any,
    config: BakeConfig,
    known: Mapping[str, Sequence[Trajectory]],
    given: bool,
    tokens: int | None,
) -> dict[str, list[float]]:
    """Return group → score of the reply to each context, from 0 to 1.

    `known` are the trajectories of each place, whose beginnings are continued: without the prompts, and
    with them if `given` is True. `tokens` is `Started.pass_tokens`. Raises the errors of
    `Verifier.verify`.
    """
    ends, verifier = end_tokens(model, tokenizer), FormVerifier()
    checks: Any = config.checks
    found: dict[str, list[float]] = {}
    for place, some in known.items():
        arms: dict[str, list[Ids]] = {UNPROMPTED: [one.plain for one in some]}
        if given:
            arms[PROMPTED] = [one.prompted for one in some]
        for arm, beginnings in arms.items():
            replies = greedy(model, beginnings, config.reply_tokens, ends, tokens)
            said = [_text(tokenizer, reply, ends) for reply in replies]
            contexts = [_text(tokenizer, one.plain, ()) for one in some]
            for number, check in enumerate(checks, 1):
                if check is None:
                    continue
                found[group(arm, place, number)] = [
                    verifier.verify(check, reply, _item(f"{place}-{n}", asked)).score
                    for n, (reply, asked) in enumerate(zip(said, contexts, strict=True))
                ]
    return found


def _item(id_: str, prompt: str) -> dict[str, Any]:
    """Return what a scorer is told of a context."""
    return {"id": id_, "domain": "contexts", "prompt": prompt}


def _text(tokenizer: Any, ids: Ids, ends: Any) -> str:
    """Return the text of some ids, an end token left out."""
    kept = [token for token in ids.tolist() if token not in ends]
    return tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
