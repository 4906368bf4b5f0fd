"""Report of a merging run: numbers from the log as plain data, as Markdown, and the command. Pure.

The command asks for the same run again: its models, its data, and the settings that are not defaults.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from datetime import timedelta
from itertools import combinations, pairwise

from agent_forge.events import Envelope
from agent_forge.events.envelope import Plain
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.recipes.recipe import (
    PIPELINES,
    Merge,
    Pipeline,
    Source,
    blocks,
    closure,
    genome,
)
from agent_forge.evomerge.reports import generation_rows, search_statistics, skills
from agent_forge.evomerge.reports.verdict import rivals, sentence, verdict
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.search import diversity
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.panels.report_html import PICTURE
from agent_forge.runs.record.events import ENDED
from agent_forge.runs.record.lineage import elapsed
from agent_forge.runs.system.durations import day
from agent_forge.runs.system.plain_text import visible

#: A pipeline stage whose choice moves the weights by less than this is called inactive.
INACTIVE = 0.05

#: Event type → what its seconds were spent on.
SPENT = {
    "profiled": "measuring speed",
    "baseline_built": "building",
    "seeded": "building",
    "merged": "building",
    "mutated": "building",
    "sampled": "building",
    "crossed": "building",
    "layers_chosen": "choosing layers",
    "evaluated": "evaluating",
}


def pipeline_number(state: RunState, recipe_id: str) -> int | None:
    """Return the number of the pipeline that made a candidate, 0 to 7; None if none did."""
    recipe = state.recipes[recipe_id]
    if isinstance(recipe, Source | Merge):
        return None
    merge = genome(recipe, state.recipes).pipeline
    return merge.number if isinstance(merge, Pipeline) else None


def usage(state: RunState) -> dict[int, int]:
    """Return {pipeline number, 0 to 7: count of candidates that it made in the whole run}."""
    counts = dict.fromkeys(range(len(PIPELINES)), 0)
    for candidate in state.candidates.values():
        number = pipeline_number(state, candidate.recipe_id)
        if number is not None:
            counts[number] += 1
    return counts


def metrics(state: RunState) -> dict[str, object]:
    """Return {name: value}, the `metrics` of the source documents' result (SPEC §11)."""
    first = next((c.score for c in state.champions), None)
    last = state.champions[-1].score if state.champions else None
    gain = None if first is None or last is None else last - first
    newest = max(state.diversities, default=None)
    return {
        "best_fitness": last,
        "initial_fitness": first,
        "improvement": gain,
        "improvement_pct": gain / abs(first) if gain is not None and first else None,
        "generations_run": max(0, len(state.generations) - 1),
        "convergence_reason": state.converged.reason if state.converged else None,
        "final_diversity": None if newest is None else state.diversities[newest].diversity,
        "best_combo": pipeline_number(state, state.champion) if state.champion else None,
        "combo_usage": usage(state),
        "fitness_components": state.completed.test.normalised if state.completed else None,
    }


def bit_effects(state: RunState) -> dict[str, float]:
    """Return {stage: how far the stage's choice moves the weights}.

    It is the mean ‖Δ‖ between generation 0's pipelines that differ in the stage alone, over
    ‖mean τ‖. Computed from sketches, so an estimate within some ten percent.
    """
    mean = state.built.get(state.baselines.get("mean", ""))
    seeds = {
        state.recipes[c.recipe_id].number: c.sketch  # pyright: ignore[reportAttributeAccessIssue]
        for (generation, _), c in sorted(state.candidates.items())
        if generation == 0 and state.recipes[c.recipe_id].kind == "pipeline"
    }
    unit = math.sqrt(math.fsum(x * x for x in diversity.decode(mean[1]))) if mean else 0.0
    effects: dict[str, float] = {}
    for stage, bit in (("interpolation", 4), ("task arithmetic", 2), ("selection", 1)):
        pairs = [
            diversity.distance(seeds[a], seeds[b])
            for a, b in combinations(sorted(seeds), 2)
            if a ^ b == bit
        ]
        if pairs and unit:
            effects[stage] = math.fsum(pairs) / len(pairs) / unit
    return effects


def spent(state: RunState, rows: Sequence[Envelope]) -> dict[str, float]:
    """Return {purpose: seconds spent on it}, as the tasks themselves measured them."""
    totals: dict[str, float] = {}
    for row in rows:
        if row.type in SPENT:
            seconds = getattr(events.REGISTRY.load(row), "seconds", 0.0)
            totals[SPENT[row.type]] = totals.get(SPENT[row.type], 0.0) + seconds
    return totals


def wall_seconds(rows: Sequence[Envelope]) -> float:
    """Return the seconds from the first event to the last, pauses included, exports left out.

    A clock that was set back adds nothing, and takes nothing away.
    """
    times = [row.recorded_at for row in rows if row.type != events.Exported.type]
    return sum((elapsed(a, b) for a, b in pairwise(times)), timedelta()).total_seconds()


def origin(state: RunState) -> str | None:
    """Return the event that a run was forked at, as PARENT@VERSION; None if it is no fork."""
    fork = state.forked
    return f"{fork.parent}@{fork.version}" if fork else None


def cost(state: RunState) -> dict[str, object]:
    """Return a dict of the costs of champion and sources: operations, bytes, blocks, measured speed.

    Before there is a champion, the base takes its place.
    """
    assert state.started
    shown = state.champion or state.started.base.recipe_id
    return {
        **state.cost(shown).model_dump(),
        "blocks": blocks(state.recipes[shown], state.recipes, state.started.blocks),
        "sources": {**state.started.cost.model_dump(), "blocks": state.started.blocks},
        "measured": state.profiled.speed.model_dump() if state.profiled else None,
    }


def spending(state: RunState) -> dict[str, float]:
    """Return {evaluations, items, device_seconds, wall_seconds}: what the search has spent."""
    return {
        "evaluations": state.spent.evaluations,
        "items": state.spent.items,
        "device_seconds": state.spent.device,
        "wall_seconds": state.spent.wall,
    }


def ending(state: RunState) -> Plain:
    """Return {verdict, test, rivals, lineage_digest}: what `completed` says."""
    assert state.completed
    measured = state.components((state.completed.champion, "test", None))
    return {
        "verdict": {**verdict(state), "sentence": sentence(state)},
        "test": {
            "score": state.completed.test.scalar,
            "quality": state.completed.test.quality,
            "components": measured.model_dump(mode="json") if measured else None,
        },
        "rivals": rivals(state),
        "lineage_digest": state.completed.lineage_digest,
    }


def report(state: RunState, rows: Sequence[Envelope]) -> Plain:
    """Return the whole report as a dict for JSON."""
    assert state.submitted
    assert state.started
    result: dict[str, object] = {
        "run": state.run,
        "status": state.status,
        "forked_from": origin(state),
        "owner": state.submitted.owner,
        "submitted_at": rows[0].recorded_at,
        "ended_at": next((row.recorded_at for row in rows if row.type in ENDED), None),
        "command": command(state),
        "champion": state.champion,
        "metrics": metrics(state),
        "generations": generation_rows.rows(state),
        "stages": bit_effects(state),
        "seconds": {**spent(state, rows), "wall": wall_seconds(rows)},
        "cost": cost(state),
        "strategy": state.version_of(max(0, state.generation - 1)),
        "techniques": search_statistics.techniques(state),
        "genes": search_statistics.genes(state),
        "front": search_statistics.front(state),
        "spent": spending(state),
        "skills": skills.data(state),
        "warnings": list(state.started.warnings),
        "profile": state.started.profile.model_dump(),
        "chain_head": rows[-1].hash,
    }
    return result | ending(state) if state.completed else result


def _cell(value: float | None, form: str = ".4f") -> str:
    return "–" if value is None else format(value, form)


def _cost(data: Plain) -> str:
    """Return the models' cost in sentences; all have one shape, unless paths were searched."""
    what = f"{_priced(data)} of weights, cache and activations, by arithmetic"
    shape_sentence, whose = f"Champion and sources have one shape: {what}.", ""
    if data["blocks"] != data["sources"]["blocks"]:
        shape_sentence = (
            f"The champion has {data['blocks']} blocks: {what}. The sources have "
            f"{data['sources']['blocks']}: {_priced(data['sources'])}."
        )
        whose = ", the sources' shape"
    speed = data["measured"]
    if speed is None:
        return shape_sentence
    spread = speed["latency_spread"]
    peak = speed["peak_bytes"]
    return (
        f"{shape_sentence} Measured on the run's device{whose}: {speed['tokens_per_second']:,.0f} ± "
        f"{speed['spread']:,.0f} tokens/s, {speed['latency_seconds'] * 1e3:,.1f}"
        + (f" ± {spread * 1e3:,.1f}" if spread is not None else "")
        + " ms a window"
        + (f", at most {peak / 1e6:,.1f} MB beside the weights." if peak is not None else ".")
    )


def _priced(cost: Plain) -> str:
    return f"{cost['flops_per_token'] / 1e9:.4g} GFLOP a token, {cost['bytes'] / 1e6:,.1f} MB"


def _stages(data: Plain) -> list[str]:
    """Return lines on the eight methods of three stages: how often each was made, what stages move."""
    lines = ["", "## Merge methods of three stages", ""]
    lines += ["Candidates made by interpolation, task arithmetic and selection, in each way:", ""]
    for number, count in data["metrics"]["combo_usage"].items():
        lines.append(f"- {number} {'-'.join(PIPELINES[int(number)])}: {count}")
    lines += ["", "What each stage's choice moves (‖Δ‖ / ‖mean task vector‖, from sketches):", ""]
    for stage, effect in data["stages"].items():
        lines.append(f"- {stage}: {effect:.2f}{' (inactive)' if effect < INACTIVE else ''}")
    return lines


def markdown(data: Plain, picture: bool = True) -> str:
    """Return a completed run's report as Markdown, for people; `picture`: show the one beside it."""
    lines = [f"# Run {data['run']}", "", data["verdict"]["sentence"], "", *_submission_lines(data), ""]
    if data["forked_from"]:
        lines += [f"Forked from run {data['forked_from'].replace('@', ' after its event ')}.", ""]
    lines += [PICTURE, ""] if picture else []
    lines += ["## Champion against its rivals, on the test slice", ""]
    lines += ["| | kind | score | perplexity | accuracy | champion's lead | 95 % interval |  |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    test = data["test"]
    components = test["components"]
    lines.append(
        f"| **champion** | | {_cell(test['score'])} | {_cell(components['perplexity'], '.3f')} | "
        f"{_cell(components['accuracy'])} | | | |"
    )
    for r in data["rivals"]:
        lines.append(
            f"| {r['name']} | {r['kind']} | {_cell(r['score'])} | {_cell(r['perplexity'], '.3f')} | "
            f"{_cell(r['accuracy'])} | {_cell(r['lead'], '+.4f')} | "
            f"{_cell(r['low'], '+.4f')} … {_cell(r['high'], '+.4f')} | {r['verdict'] or '–'} |"
        )
    lines += ["", _EXPLANATION, "", *_skills(data["skills"]), "## Generations", ""]
    lines += ["| generation | best on its draw | mean | champion (selection) | diversity |  |"]
    lines += ["|---|---|---|---|---|---|"]
    for g in data["generations"]:
        lines.append(
            f"| {g['generation']} | {_cell(g['best'])} | {_cell(g['mean'])} | "
            f"{_cell(g['champion'])} | {_cell(g['diversity'], '.2f')} | {g['level']} |"
        )
    if data["stages"]:
        lines += _stages(data)
    lines += search_statistics.lines(data)
    if data["warnings"]:
        lines += ["", "## Warnings", "", *(f"- {warning}" for warning in data["warnings"])]
    lines += ["", "## Cost", "", _cost(data["cost"]), "", "## Time", ""]
    seconds = dict(data["seconds"])
    wall = seconds.pop("wall")
    for what, value in seconds.items():
        lines.append(f"- {what}: {value:.1f} s")
    lines += [f"- wall clock from first to last event: {wall:.1f} s"]
    totals = data["spent"]
    lines += [
        f"- the search's {totals['evaluations']} evaluations scored {totals['items']:,} items",
        "",
    ]
    lines += [f"Chain head: `{data['chain_head']}`", f"Lineage: `{data['lineage_digest']}`", ""]
    return "\n".join(lines)


def _submission_lines(data: Plain) -> list[str]:
    """Return lines on who asked for the run and when, and the command that asks for it again."""
    submission_sentence = f"Submitted by {visible(data['owner'])} on {day(data['submitted_at'])}"
    ended = f"; ended on {day(data['ended_at'])}" if data["ended_at"] else ""
    return [f"{submission_sentence}{ended}. The same run again:", "", f"    {data['command']}"]


def _skills(data: dict[str, object] | None) -> list[str]:
    """Return the lines of the table of skills by model; [] without one."""
    if not data or not data["rows"]:
        return []
    title = f"## Skills by model, on the {data['slice']} slice"
    return [title, "", *skills.markdown(data), ""]


_EXPLANATION = (
    "Scores are fitness: 1 in a component is the best source on the same items. The interval is a "
    "paired bootstrap over items (2,000 resamples); the champion is *better* if the whole interval is "
    "above zero by more than rounding, *worse* if it is below, and *level* otherwise. The test slice "
    "was read once, for this table."
)


def command(state: RunState) -> str:
    """Return the text of `forge evo` with options that ask for the run's models, data and settings."""
    assert state.submitted
    sources = ",".join(map(_place, state.submitted.sources))
    words = ["forge", "evo", "--base-models", sources]
    if state.submitted.base is not None:
        words += ["--base-model", _place(state.submitted.base)]
    for path in state.submitted.data:
        words += ["--data", path]
    usual = EvoMergeConfig().flat()
    for name, value in state.submitted.config.flat().items():
        if value != usual.get(name):
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", f"{name}={text}"]
    return visible(shlex.join(words))


def _place(model: ModelReference) -> str:
    """Return the text that names a model: its Hub id with the revision, or its folder."""
    if model.hub_id is None:
        return model.path
    return f"{model.hub_id}@{model.revision}" if model.revision else model.hub_id


def recipe_document(state: RunState, recipe_id: str, chain_head: str) -> dict[str, object]:
    """Return a dict for JSON: a candidate's recipe with all ancestors, enough to rebuild it."""
    assert state.started
    needed = closure(recipe_id, state.recipes)
    started = state.started
    sources = {s.recipe_id: s.name for s in (started.base, *started.sources)}
    return {
        "run": state.run,
        "forked_from": origin(state),
        "candidate": recipe_id,
        "digest": state.built[recipe_id][0],
        "chain_head": chain_head,
        "sources": sources,
        "places": places(state),
        "recipes": {id_: recipe.model_dump(mode="json") for id_, recipe in needed.items()},
    }


def places(state: RunState) -> dict[str, str]:
    """Return {recipe id: place of base or source at the start}: Hub id@revision, or folder."""
    assert state.started
    assert state.submitted
    models = (state.submitted.base or state.submitted.sources[0], *state.submitted.sources)
    records = (state.started.base, *state.started.sources)
    return {
        record.recipe_id: f"{m.hub_id}@{m.revision}" if m.hub_id else m.path
        for record, m in zip(records, models, strict=True)
    }
