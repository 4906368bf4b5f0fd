"""Tasks and events of a merging run in words, for dashboard, terminal and messages.

Pure. `names` maps a recipe id to what people call the recipe; without a name, an id is cut to
twelve digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agent_forge.events.envelope import Data

if TYPE_CHECKING:
    from agent_forge.evomerge.run.state import RunState

Names = Mapping[str, str]

#: Why a search ended, as the end of "The search has ended: …".
ENDINGS = {
    "generations": "all generations are done",
    "plateau": "the champion has not improved for as many generations as the settings allow",
    "evaluations": "the budget of evaluations is spent",
    "items": "the budget of items is spent",
    "hours": "the budget of hours is spent",
    "device_hours": "the budget of device hours is spent",
}


def names(state: RunState) -> dict[str, str]:
    """Return {recipe id: the recipe's name}: a source's name, "mean", "candidate 3/5"."""
    names_by_id: dict[str, str] = {}
    if state.started:
        names_by_id = {s.recipe_id: s.name for s in (state.started.base, *state.started.sources)}
    for name, id_ in state.baselines.items():
        names_by_id.setdefault(id_, name)
    for (generation, slot), built in sorted(state.candidates.items()):
        names_by_id.setdefault(built.recipe_id, f"candidate {generation}/{slot}")
    return names_by_id


def named(recipe_id: str, names: Names | None = None) -> str:
    """Return a recipe's name; without one, the first twelve digits of its id."""
    return (names or {}).get(recipe_id) or recipe_id[:12]


def task(key: str, names: Names | None = None) -> str:
    """Return a task in words, from its key; '' if the key is no task's."""
    kind, _, rest = key.partition("/")
    if kind == "evaluate":
        slice_, _, recipe_id = rest.split("/")
        return f"measuring {named(recipe_id, names)} on {slice_}"
    words = {
        "start": "reading models and data",
        "profile": "measuring speed and memory",
        "baseline": f"building {rest}",
        "build": f"building {rest}",
        "layers": f"choosing layers for {rest}",
    }
    return words.get(kind, "")


def summary_line(type_: str, data: Data, names: Names) -> str | None:
    """Return an event in words, on one line; None for a type that is common to all runs."""
    tell = _GISTS.get(type_)
    return None if tell is None else tell(data, names)


def _score(value: float | None) -> str:
    return "no score" if value is None else f"{value:.4f}"


def _submitted(data: Data, _names: Names) -> str:
    sources = ", ".join(source["name"] for source in data["sources"])
    config = data["config"]
    return f"{sources}; strategy {config['strategy']}, {config['generations']} generations"


def _evaluated(data: Data, names: Names) -> str:
    who = named(data["recipe_id"], names)
    draw = "" if data["generation"] is None else f", draw of generation {data['generation']}"
    head = f"{who} on {data['slice']}{draw}"
    if data["fitness"] is None:  # a source is what fitness is relative to: it may have none
        components = data.get("components") or {}
        figure = f"perplexity {components['perplexity']:.4g}" if components else "nothing measured"
        return f"{head}: {data.get('why_none') or figure}"
    ended = " (ended early)" if data.get("stopped") else ""
    return f"{head}: {_score(data['fitness']['scalar'])}{ended}"


def _generation(data: Data, _names: Names) -> str:
    scores = [score for score in data["scores"] if score is not None]
    head = f"generation {data['generation']}"
    if not scores:
        return f"{head}: no candidate has a score"
    mean = _score(sum(scores) / len(scores))
    return f"{head}: best on its draw {_score(max(scores))}, mean {mean}"


_GISTS: dict[str, Callable[[Data, Names], str]] = {
    "submitted": _submitted,
    "started": lambda d, _: f"{d['blocks']} blocks, {len(d['sources'])} sources, {d['strategy']}",
    "profiled": lambda d, _: f"{d['speed']['tokens_per_second']:,.0f} tokens/s",
    "baseline_built": lambda d, _: f"fixed merge {d['name']} is built",
    **dict.fromkeys(
        ("seeded", "merged", "mutated", "sampled", "crossed"),
        lambda d, _: f"candidate {d['generation']}/{d['slot']} is built: {d['recipe_id'][:12]}",
    ),
    "layers_chosen": lambda d, _: f"layers for candidate {d['generation']}/{d['slot']}",
    "evaluated": _evaluated,
    "diversity_measured": lambda d, _: (
        f"generation {d['generation']}: diversity {d['diversity']:.2f}, {d['level']}"
    ),
    "generation_completed": _generation,
    "champion_changed": lambda d, names: (
        f"{named(d['recipe_id'], names)} with {_score(d['score'])} on selection"
    ),
    "reseeded": lambda d, _: (
        f"generation {d['generation']}: {len(d['slots'])} new candidates, diversity "
        f"{d['diversity']:.2f}"
    ),
    "converged": lambda d, _: f"the search has ended: {ENDINGS[d['reason']]}",
    "completed": lambda d, names: (
        f"{named(d['champion'], names)} with {_score(d['test']['scalar'])} on test"
    ),
    "exported": lambda d, names: f"{named(d['recipe_id'], names)} to {d['folder']}",
}
