"""Prose of a quietstar run that has completed: report, sentences, lines, card. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phases.quietstar import figures
from phases.quietstar.events import frozen
from phases.quietstar.figures import RIVALS
from phases.quietstar.recipes import CONTINUED, SHUFFLED, SILENT, THOUGHTS
from studies.comparison import TEST, lead_line
from studies.run import Run
from studies.training_plan import tokens


def fields(run: Run) -> dict[str, Any]:
    """Return sizes, the result, and what thoughts cost."""
    pinned = frozen(run.state, TEST)
    assert pinned is not None
    return {
        "parameters": run.started.model.parameters,
        #: Tokens of a thought.
        "length": run.settings.thought_lengths[-1],
        #: Hard tokens of the test slice, and all its tokens.
        "hard_tokens": count(pinned.tokens),
        "test_tokens": sum(map(sum, pinned.sizes.values())),
        #: The arm that is the result: thoughts, or the given model.
        "chosen": run.state.completed.chosen,
        #: Arm → seconds of a training step, and of measuring over those of continued training.
        "step_seconds": figures.step_seconds(run),
        "cost": figures.costs(run.seen),
    }


def arms(arms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nats a token of each arm by domain, of hard ones and of all."""
    return {"arms": {name: arm.model_dump() for name, arm in arms.items()}}


def lines(run: Run) -> list[str]:
    """Return the report of a completed run as lines of text for a terminal."""
    arms, words = run.state.completed.arms, run.study.arms
    out = [
        "nats a token (lower is better), test slice, means over domains:",
        f"{'':10s}{'hard':>10s}{'all':>10s}",
    ]
    for name in (name for name in words if name in arms):
        hard, every = (sum(v.values()) / len(v) for v in (arms[name].hard, arms[name].every))
        out.append(f"{name:10s}{hard:10.4f}{every:10.4f}")
    for name in (*RIVALS, SHUFFLED):
        compared = (name, words[name].words, run.leads[name], THOUGHTS)
        out.append(lead_line(*compared, unit="nats a hard token"))
    return [*out, f"gate: {verdict(run)}"]


def verdict(run: Run) -> str:
    """Return what the gate has decided, as a sentence."""
    if run.result == SILENT:
        return "thoughts help, and it is the thoughts: the result is the model that thinks"
    done, why = run.state.completed.figures, []
    if done["gain"].low <= 0:
        why.append("thoughts are not below continued training and pauses")
    if done["genuine"].low < 0:
        why.append("exchanged thoughts do not cost half of the gain")
    return f"no gain ({'; '.join(why)}): the given model is passed through unchanged"


def sentences(run: Run) -> list[str]:
    """Return what a completed run has found, as a list."""
    done, shown = run.state.completed.figures, fields(run)

    def span(name: str) -> str:
        one = done[name]
        return f"{one.value:+.4f} nats a hard token ({one.low:+.4f} to {one.high:+.4f})"

    cost = shown["cost"].get(THOUGHTS)
    took = f" Measured, a token with thoughts took {cost:.1f} times as long." if cost else ""
    return [
        f"- {verdict(run).capitalize()}.",
        f"- Over continued training thoughts gain {span('over_continued')}, over pauses "
        f"{span('over_pause')}; with thoughts of other positions the model needs "
        f"{span('exchanged')} more.",
        f"- {shown['hard_tokens']:,} of {shown['test_tokens']:,} tokens are hard; thoughts have "
        f"{shown['length']} tokens.{took}",
    ]


def paragraphs(run: Run, role: str) -> list[str]:
    """Return what each arm read, and how the model is loaded with thoughts."""
    return [
        f"Each arm read {tokens(run.trainings[CONTINUED]):,} tokens.",
        "",
        "transformers loads this folder as an ordinary model, without thoughts. If "
        "modeling_thoughts.py lies in it, that file loads the same model with thoughts:",
        "",
        "```python",
        "from modeling_thoughts import Thinker",
        "",
        'model = Thinker.from_pretrained("FOLDER")',
        "ids = model.generate(prompt_ids, 20)",
        "```",
    ]


def count(places: Mapping[str, Sequence[Sequence[int]]]) -> int:
    """Return the number of hard tokens; `places`: domain → for each document those of its own."""
    return sum(len(own) for documents in places.values() for own in documents)
