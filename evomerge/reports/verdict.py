"""Verdict of a completed run: the champion beside its rivals on the test slice, in words. Pure.

A rival's word is `better`, `level` or `worse`: what the champion is, compared with the rival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.fitness.paired_bootstrap import rounding
from agent_forge.evomerge.reports import skills
from agent_forge.evomerge.run.events import Rival
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.panels.panels import COMPARED, Verdict

#: Kind of rival → what a text calls it.
NOUNS = {"baseline": "merge", "source": "source", "base": "base"}


@dataclass(frozen=True)
class StartingModel:
    """The model that the run began with and that its champion is."""

    name: str
    kind: str
    #: True if the weights are equal; False if only all results are.
    same_weights: bool


def given(state: RunState) -> StartingModel | None:
    """Return as a `StartingModel` the base, source or fixed merge that the champion is; None if new.

    Before the run has completed, weights alone can tell.
    """
    if state.champion is None or state.started is None:
        return None
    digest = state.built[state.champion][0]
    for name, kind, recipe_id in _beginnings(state):
        if recipe_id in state.built and state.built[recipe_id][0] == digest:
            return StartingModel(name, kind, True)
    for rival in state.completed.rivals if state.completed else ():
        if rival.lead and rival.lead.difference == rival.lead.low == rival.lead.high == 0:
            return StartingModel(rival.name, rival.kind, False)
    return None


def _beginnings(state: RunState) -> list[tuple[str, str, str]]:
    """Return (name, kind, recipe id) of sources, base and fixed merges."""
    assert state.started
    models = [(s.name, "source", s.recipe_id) for s in state.started.sources]
    models.append((state.started.base.name, "base", state.started.base.recipe_id))
    return models + [(name, "baseline", id_) for name, id_ in sorted(state.baselines.items())]


def given_sentence(state: RunState) -> str | None:
    """Return a sentence if the champion is a model that the search was given; else None."""
    model = given(state)
    if model is None:
        return None
    noun = NOUNS[model.kind]
    what = f"is that {noun}" if model.same_weights else f"scores exactly as that {noun} does"
    first = f"The search found nothing better than {model.name}, which it was given"
    return f"{first}: the champion {what}."


def verdict(state: RunState) -> dict[str, object]:
    """Return a dict: names of rivals that the champion does not beat, and flags (SPEC §5)."""
    assert state.completed
    words = _rival_words(state)
    judged = [(rival, word) for rival, word in words if word is not None]
    fixed = [(rival, word) for rival, word in judged if rival.kind == "baseline"]
    best = max(fixed, key=lambda pair: pair[0].scalar or 0.0, default=None)
    model, against = given(state), best[1] if best else None
    return {
        "given": None if model is None else {"name": model.name, "kind": model.kind},
        "beats_sources_and_base": all(w == "better" for r, w in judged if r.kind != "baseline"),
        "level": [rival.name for rival, word in judged if word == "level"],
        "worse": [rival.name for rival, word in judged if word == "worse"],
        "not_beaten": [rival.name for rival, word in judged if word != "better"],
        "best_baseline": best[0].name if best else None,
        "loses_to_best_baseline": against == "worse",
        "beats_best_baseline": against == "better",
    }


def _rival_words(state: RunState) -> list[tuple[Rival, Verdict | None]]:
    """Return (rival, "better", "level", "worse" or None) of each; None: the rival has no score."""
    assert state.completed
    noise = _rounding(state)
    return [
        (rival, rival.lead.verdict(noise) if rival.lead and rival.scalar is not None else None)
        for rival in state.completed.rivals
    ]


def _rounding(state: RunState) -> float:
    """Return the largest lead on the test slice that may be rounding."""
    assert state.submitted
    assert state.started
    config, best = state.submitted.config, state.reference("test", None)
    assert best
    raw, computed_in = config.normalise == "none", state.started.profile.computed_in
    return rounding(best, config.fitness_weights, raw, computed_in, config.skills)


def within_rounding(state: RunState) -> str:
    """Return a sentence if a lead whose interval lies beyond zero counts as level; else ''."""
    level = [rival.lead for rival, word in _rival_words(state) if word == "level" and rival.lead]
    if not any(lead.low > 0 or lead.high < 0 for lead in level):
        return ""
    noise = f"{_rounding(state):.4f}"
    return f"A lead whose interval begins within {noise} of 0 may be rounding: it is level."


def sentence(state: RunState) -> str:
    """Return the verdict in plain sentences, as one text."""
    model, first = given(state), given_sentence(state)
    words = [(rival, word) for rival, word in _rival_words(state) if word and not _is(rival, model)]
    verdicts = [(rival.name, word) for rival, word in words if rival.kind != "baseline"]
    subject = "The champion" if first is None else "It"
    text = _against_sources(subject, verdicts, "" if model is None else model.kind)
    fixed = [(rival, word) for rival, word in words if rival.kind == "baseline"]
    best = max(fixed, key=lambda pair: pair[0].scalar or 0.0, default=None)
    itself = model is not None and model.kind == "baseline"
    last = _against_fixed(state.run, best[0].name, best[1], itself) if best else ""
    near = skills.near_sentence(state) if model is None else None
    return " ".join(part for part in (first, text, last, near) if part)


def _is(rival: Rival, model: StartingModel | None) -> bool:
    """Return True if a rival is the model that the champion is."""
    return model is not None and (model.name, model.kind) == (rival.name, rival.kind)


def _against_sources(subject: str, verdicts: Sequence[tuple[str, str]], kind: str) -> str:
    """Return a sentence on the champion beside sources and base; '' without verdicts."""
    if not verdicts:
        return ""
    if all(word == "better" for _, word in verdicts):
        whom = {"source": "every other source and the base", "base": "every source"}
        than = whom.get(kind, "every source and the base")
        return f"{subject} is better than {than} on the test slice."
    order: tuple[Verdict, ...] = ("worse", "level")
    parts = [
        f"{COMPARED[word]} {', '.join(names)}"
        for word in order
        if (names := [name for name, other in verdicts if other == word])
    ]
    subject = subject[0].lower() + subject[1:]
    return f"NO CLEAR GAIN: on the test slice {subject} is {' and '.join(parts)}."


def _against_fixed(run: str, name: str, word: str, itself: bool) -> str:
    """Return a sentence on the champion beside the best fixed merge; `itself`: it is one, too."""
    against = f"the best {'other ' if itself else ''}fixed merge ({name})"
    if word == "better":
        return f"It is better than {against} too."
    if word == "worse":
        how = f"forge export {run}:{name} --out {name}"
        return f"It is worse than {against}: take that instead, with {how}."
    return f"It is level with {against}: the difference is within the noise."


def rivals(state: RunState) -> list[Plain]:
    """Return a dict for each rival: its scores and the champion's lead over it, on the test slice."""
    result = []
    for rival, word in _rival_words(state):
        lead = rival.lead
        measured = state.components((rival.recipe_id, "test", None))
        result.append(
            {
                "name": rival.name,
                "kind": rival.kind,
                "score": rival.scalar,
                "perplexity": measured.perplexity if measured else None,
                "accuracy": measured.accuracy if measured else None,
                "lead": lead.difference if lead else None,
                "low": lead.low if lead else None,
                "high": lead.high if lead else None,
                "beaten": word == "better" if word else None,
                "worse": word == "worse" if word else None,
                "verdict": word,
            }
        )
    return result
