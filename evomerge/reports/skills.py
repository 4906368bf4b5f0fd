"""Skills by model: what champion, sources, base and fixed merges do in each domain. Pure.

A skill is one kind of items of a domain: problems solved, questions right, or text in bits per byte.
Scores average over skills and hide which of them a model has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Outcomes
from agent_forge.evaluation.data.slices import Slice
from agent_forge.events.envelope import Plain
from agent_forge.evomerge.fitness.composite import bits_per_byte
from agent_forge.evomerge.recipes.recipe import blocks
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.search import diversity

#: What the champion is called.
OURS = "champion"
#: Cosine of two task vectors from which a text says that the champion is close to a source.
NEAR = 0.95


@dataclass(frozen=True)
class Skill:
    """One kind of items of a domain, and each model's result on them."""

    domain: str
    kind: Literal["text", "questions", "problems"]
    #: "problems solved", "questions right", "bits per byte" or, in older logs, "nats per token".
    measure: str
    #: Number of items: problems, questions or windows.
    of: int
    better: Literal["up", "down"]
    #: A result for each model; None for a model whose result is not finite.
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class SkillTable:
    """All skills, on one slice. `names` differ; `groups` has "", source, base or baseline for each."""

    slice: Slice
    names: tuple[str, ...]
    groups: tuple[str, ...]
    skills: tuple[Skill, ...]

    def title(self, skill: Skill) -> str:
        """Return the skill's unique name: its domain, with the kind if the domain has several."""
        alone = [other.domain for other in self.skills].count(skill.domain) == 1
        return skill.domain if alone else f"{skill.domain}, {skill.kind}"


def distinct(names: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Return names that differ: a later one that occurs twice gets its group, then a number."""
    unique_names: list[str] = []
    for name, group in zip(names, groups, strict=True):
        label, number = name, 1
        while label in unique_names:
            label = f"{name} ({group})" if number == 1 else f"{name} ({group} {number})"
            number += 1
        unique_names.append(label)
    return unique_names


def skills(state: RunState) -> SkillTable | None:
    """Return the `SkillTable` of the test slice, of selection before the end; None without champion."""
    if state.champion is None or state.started is None:
        return None
    slice_: Slice = "test" if state.completed else "selection"
    whole = state.outcomes((state.champion, slice_, None))
    if not whole:
        return None
    models: list[tuple[str, str, Outcomes]] = [(OURS, "", whole)]
    for name, group, recipe_id in _others(state):
        model_outcomes = state.outcomes((recipe_id, slice_, None))
        if model_outcomes is not None:
            models.append((name, group, model_outcomes))
    names, groups, outcomes = zip(*models, strict=True)
    rows = [row for domain in sorted(whole) for row in _rows(domain, outcomes)]
    return SkillTable(slice_, tuple(distinct(names, groups)), groups, tuple(rows))


def _others(state: RunState) -> list[tuple[str, str, str]]:
    """Return (name, group, recipe id) of sources, base and fixed merges."""
    assert state.started
    sources, base = state.started.sources, state.started.base
    models = [(source.name, "source", source.recipe_id) for source in sources]
    if not state.is_source(base.recipe_id):
        models.append((base.name, "base", base.recipe_id))
    return models + [(name, "baseline", id_) for name, id_ in sorted(state.baselines.items())]


def _rows(domain: str, outcomes: Sequence[Outcomes]) -> list[Skill]:
    """Return a list of `Skill`, a domain's: text, questions and problems, those that the slice has."""
    domain_outcomes = [model.get(domain) for model in outcomes]
    champion_outcome = domain_outcomes[0]
    assert champion_outcome
    domain_skills = []
    if champion_outcome.nll:
        in_bytes = all(outcome.bytes for outcome in domain_outcomes if outcome)
        measure = "bits per byte" if in_bytes else "nats per token"
        values = tuple(_rate(outcome, in_bytes) for outcome in domain_outcomes)
        domain_skills.append(Skill(domain, "text", measure, len(champion_outcome.nll), "down", values))
    if champion_outcome.right:
        values = tuple(math.fsum(outcome.right) if outcome else None for outcome in domain_outcomes)
        domain_skills.append(
            Skill(domain, "questions", "questions right", len(champion_outcome.right), "up", values)
        )
    if champion_outcome.solved:
        values = tuple(math.fsum(outcome.solved) if outcome else None for outcome in domain_outcomes)
        domain_skills.append(
            Skill(domain, "problems", "problems solved", len(champion_outcome.solved), "up", values)
        )
    return domain_skills


def _rate(outcome: DomainOutcomes | None, in_bytes: bool) -> float | None:
    """Return bits per byte, or nats per token, of a domain's text; None without text."""
    if outcome is None or not outcome.nll:
        return None
    return bits_per_byte(outcome) if in_bytes else math.fsum(outcome.nll) / sum(outcome.tokens)


# ---- as plain data and as text -----------------------------------------------------------------


def data(state: RunState) -> Plain | None:
    """Return {slice, rows}, the skills for the API and reports; None without any."""
    skill_table = skills(state)
    if skill_table is None:
        return None
    rows = [
        {
            "skill": skill_table.title(skill),
            "domain": skill.domain,
            "kind": skill.kind,
            "metric": skill.measure,
            "of": skill.of,
            "better": skill.better,
            "champion": skill.values[0],
            "others": dict(zip(skill_table.names[1:], skill.values[1:], strict=True)),
        }
        for skill in skill_table.skills
    ]
    return {"slice": skill_table.slice, "rows": rows}


def table(data: Plain) -> tuple[list[str], list[list[str]]]:
    """Return (heads, rows) of a table with a model a row, from what `data` returns."""
    heads = ["", *(f"{row['domain']}: {_unit(row)}" for row in data["rows"])]
    names = list(data["rows"][0]["others"]) if data["rows"] else []
    own_row = [OURS, *(_cell(row, row["champion"]) for row in data["rows"])]
    rival_rows = [[name, *(_cell(row, row["others"][name]) for row in data["rows"])] for name in names]
    return heads, [own_row, *rival_rows]


def markdown(data: dict[str, object]) -> list[str]:
    """Return the lines of `table` in Markdown."""
    heads, rows = table(data)
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def _unit(row: Plain) -> str:
    """Return the unit of a skill's values, in words."""
    return row["metric"] if row["kind"] == "text" else f"{row['metric']} of {row['of']}"


def _cell(row: dict[str, object], value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if row["kind"] == "text" else f"{value:.6g}"


# ---- closeness to a source ---------------------------------------------------------------------


def cosines(state: RunState) -> dict[str, float]:
    """Return {source's recipe id: cosine of its task vector and the champion's}.

    They are estimated from the sketches in the log, which `forge verify --rebuild` compares with the
    weights: no weights are needed. The error is about (1 − cosine²) / 16. A source that is the base
    has no direction and is left out, and so are sources of a depth that is not the champion's.
    """
    if state.champion is None or state.started is None:
        return {}
    depth = state.started.blocks
    if blocks(state.recipes[state.champion], state.recipes, depth) != depth:
        return {}
    sketch = state.built[state.champion][1]
    source_cosines = {s.recipe_id: diversity.cosine(sketch, s.sketch) for s in state.started.sources}
    return {recipe_id: value for recipe_id, value in source_cosines.items() if value is not None}


def near_sentence(state: RunState) -> str | None:
    """Return a sentence if the champion is close to a source: what both solve; else None."""
    assert state.started
    near = cosines(state)
    if not near:
        return None
    closest = max(near, key=lambda recipe_id: near[recipe_id])
    if near[closest] < NEAR or closest == state.champion:
        return None
    name = next(s.name for s in state.started.sources if s.recipe_id == closest)
    text = f"The champion is close to {name} (cosine {near[closest]:.2f})"
    if (shared := _shared(state, closest)) is None:
        return f"{text}."
    both, source_count, champion_count = shared
    return (
        f"{text}: it solves {both} of the {source_count} items that {name} solves, and "
        f"{champion_count - both or 'no'} other{'' if champion_count - both == 1 else 's'}."
    )


def _shared(state: RunState, source: str) -> tuple[int, int, int] | None:
    """Return numbers of items solved in full (by both, by the source, by the champion), or None.

    None: the items have no questions and no problems.
    """
    assert state.champion
    slice_: Slice = "test" if state.completed else "selection"
    outcomes = state.outcomes((state.champion, slice_, None))
    other = state.outcomes((source, slice_, None))
    if not outcomes or not other:
        return None
    pairs = [
        (own_value >= 1, other_value >= 1)
        for domain in sorted(outcomes)
        for own_values, other_values in (
            (outcomes[domain].right, other[domain].right),
            (outcomes[domain].solved, other[domain].solved),
        )
        for own_value, other_value in zip(own_values, other_values, strict=True)
    ]
    if not pairs:
        return None
    both = sum(champion_solves and source_solves for champion_solves, source_solves in pairs)
    return (
        both,
        sum(source_solves for _, source_solves in pairs),
        sum(champion_solves for champion_solves, _ in pairs),
    )
