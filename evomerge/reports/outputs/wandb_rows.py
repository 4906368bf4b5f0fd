"""Data for an experiment tracker such as W&B: rows by generation, summary, settings, champion.

A pure function of the run's events, with the names of the source documents (SPEC §12). The row of
a generation depends on nothing that happened after the generation. So a run that is followed while
it lives and a run that is sent years later give the same rows. Missing values are left out.
`worker/exports/wandb.py` sends the data.
"""

from __future__ import annotations

import math

from typing_extensions import override

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Weighting
from agent_forge.evomerge.recipes.recipe import PIPELINES, closure, label
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views.candidates import describe
from agent_forge.evomerge.settings_table import settings
from agent_forge.runs.kinds import tracking
from agent_forge.runs.kinds.tracking import INSIDE, SETTING, STATUS, TEXT, Parts, TrackedName, Tracking
from agent_forge.weights.storage.output_folder import MARK

#: A value of a row or of the summary.
Value = float | int | str | bool


def _row(state: RunState, generation: int) -> dict[str, object]:
    """Return {name: value} that the source documents log of a generation.

    `best_fitness` is the champion's, on the selection slice, as in those documents. `avg_fitness`
    and the elites' fitness (the first two of the ranking) are on the generation's own draw of the
    search slice.
    """
    done = state.generations[generation]
    champions = [c.score for c in state.champions if c.generation <= generation]
    measured = state.diversities.get(generation)
    elites = [*done.scores[:2], None, None]
    mutants = (
        isinstance(c, events.Mutated) for (g, _), c in state.candidates.items() if g == generation
    )
    return {
        "generation": generation,
        "population_size": len(done.ranking),
        "best_fitness": champions[-1] if champions else None,
        "avg_fitness": _mean([score for score in done.scores if score is not None]),
        "diversity": measured.diversity if measured else None,
        "elite1_fitness": elites[0],
        "elite2_fitness": elites[1],
        "mutation_count": sum(mutants),
    }


def _domains(state: RunState, generation: int) -> dict[str, float | None]:
    """Return {"DOMAIN_avg": mean score, "DOMAIN_best": best score} of a generation, each domain's."""
    scores_by_domain: dict[str, list[float]] = {}
    for recipe_id in state.generations[generation].ranking:
        for domain, score in domain_scores(state, recipe_id, generation).items():
            scores_by_domain.setdefault(domain, []).append(score)
    figures: dict[str, float | None] = {}
    for domain, scores in sorted(scores_by_domain.items()):
        figures |= {f"{domain}_avg": _mean(scores), f"{domain}_best": max(scores)}
    return figures


def domain_scores(state: RunState, recipe_id: str, generation: int) -> dict[str, float]:
    """Return {domain: a candidate's score} on a generation's draw; {} without components.

    The score is that of `evomerge.fitness.composite`: 1 if perplexity and accuracy are those of the
    best source in the domain, on the same items.
    """
    event = state.evaluations.get((recipe_id, "search", generation))
    if event is None or event.components is None:
        return {}
    draws = event.scored or state.draws("search", generation)
    usual = state.started.sources[0].recipe_id if state.started else recipe_id
    measures = [state.measure(usual, o) for o in state.sources_on("search", draws).values()]
    sources = [c for c in measures if c is not None]
    components = state.measure(recipe_id, event.outcomes)  # today's components of recorded outcomes
    if components is None or not sources:
        return {}
    names = sorted(set.intersection(*({*c.domains, *c.accuracies} for c in (components, *sources))))
    best = composite.reference(sources, names)
    weighting = Weighting(domains=dict.fromkeys(names, 1.0))
    raw = state.settings(generation).normalise == "none"
    parts = composite.fitness(components, best, weighting, raw=raw).normalised
    return {name: parts[f"domain/{name}"] for name in names}


class _Combos:
    """Counter of the eight pipelines: how often each was made so far, and its mean score."""

    def __init__(self) -> None:
        self._made = dict.fromkeys(range(len(PIPELINES)), 0)
        self._reached: dict[int, list[float]] = {number: [] for number in self._made}

    def add(self, state: RunState, generation: int, built: list[str]) -> None:
        """Count the pipelines that a generation built, and collect the scores measured in it."""
        for recipe_id in built:
            number = report.pipeline_number(state, recipe_id)
            if number is not None:
                self._made[number] += 1
        done = state.generations[generation]
        for recipe_id, score in zip(done.ranking, done.scores, strict=True):
            number = report.pipeline_number(state, recipe_id)
            if number is not None and score is not None:
                self._reached[number].append(score)

    def told(self) -> dict[str, float | None]:
        """Return {name: usage or mean score} of each pipeline; {} if the search made none."""
        if not any(self._made.values()):
            return {}
        figures: dict[str, float | None] = {}
        for number, usage in self._made.items():
            figures[f"combo/{number}/usage"] = usage
            figures[f"combo/{number}/avg_fitness"] = _mean(self._reached[number])
        return figures


def _final(state: RunState) -> dict[str, object]:
    """Return {name: value} of the result, in the words of the source documents and of the report."""
    metrics = report.metrics(state)
    figures = {
        "best_fitness": metrics["best_fitness"],
        "initial_fitness": metrics["initial_fitness"],
        "improvement": metrics["improvement"],
        "improvement_pct": metrics["improvement_pct"],
        "generations": metrics["generations_run"],
        "convergence_reason": metrics["convergence_reason"],
        "diversity": metrics["final_diversity"],
        "best_combo": metrics["best_combo"],
    }
    if state.failed:
        figures["reason"] = state.failed.reason
    if state.completed is None:
        return figures
    verdict = report.verdict(state)
    return figures | {
        "test_fitness": state.completed.test.scalar,
        "test_quality": state.completed.test.quality,
        "beats_sources_and_base": verdict["beats_sources_and_base"],
        "beats_best_baseline": verdict["beats_best_baseline"],
        "best_baseline": verdict["best_baseline"],
        "verdict": report.sentence(state),
        "lineage_digest": state.completed.lineage_digest,
        "chain_head": _chain_head(state),
    }


def _chain_head(state: RunState) -> str:
    """Return the chain head that the result stands on; later events (an export) do not count."""
    return state.completed.chain_head if state.completed else state.head


def champion(state: RunState) -> Plain | None:
    """Return the champion's record (dict) without its weights; None if there is no champion.

    The record has the recipe, enough to rebuild the champion from the sources, its digest and its
    lineage.
    """
    if state.champion is None or state.started is None:
        return None
    family = closure(state.champion, state.recipes)
    every = (state.started.base, *state.started.sources)
    return {
        "run": state.run,
        "candidate": state.champion,
        "pipeline": label(state.recipes[state.champion], state.recipes),
        "digest": state.built[state.champion][0],
        "score": state.champions[-1].score,
        "chain_head": _chain_head(state),
        "sources": {model.recipe_id: model.name for model in every},
        "lineage": [f"{id_[:12]} {describe(state, id_, recipe)}" for id_, recipe in family.items()],
        "recipes": {id_: recipe.model_dump(mode="json") for id_, recipe in family.items()},
    }


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _known(values: Plain) -> dict[str, Value]:
    """Return the dict of the values that a tracker takes: without None, NaN and Inf.

    A tracker would refuse the others, or draw them as numbers.
    """
    return {
        name: value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


#: A fitness: a weighted mean of components, 1 for the best source's.
_FITNESS = "fitness"
_ROWS = (
    ("generation", "count", "number of the generation; the step of every row"),
    ("population_size", "count", "candidates of the generation"),
    ("best_fitness", _FITNESS, "the champion's, on the selection slice"),
    ("avg_fitness", _FITNESS, "mean of the generation, on its own draw of the search slice"),
    ("diversity", "1", "mean distance of the candidates' task vectors over that of the sources'"),
    ("elite1_fitness", _FITNESS, "the first of the generation's ranking, on that draw"),
    ("elite2_fitness", _FITNESS, "the second of the ranking"),
    ("mutation_count", "count", "mutants of the generation"),
    ("{domain}_avg", "1", "mean score of the generation in a domain; 1: as the best source"),
    ("{domain}_best", "1", "best score of the generation in a domain"),
    ("combo/{pipeline}/usage", "count", "candidates so far that come down to a pipeline, 0 to 7"),
    ("combo/{pipeline}/avg_fitness", _FITNESS, "mean of what was measured of a pipeline so far"),
)
_SUMMARY = (
    ("champion", TEXT, "recipe id of the champion"),
    ("final/best_fitness", _FITNESS, "the champion's, on the selection slice"),
    ("final/initial_fitness", _FITNESS, "the first champion's, on the selection slice"),
    ("final/improvement", _FITNESS, "best minus initial fitness"),
    ("final/improvement_pct", "1", "the same as a share of the initial fitness"),
    ("final/generations", "count", "generations after the first"),
    ("final/convergence_reason", TEXT, "why the search ended"),
    ("final/diversity", "1", "diversity of the last generation"),
    ("final/best_combo", "1", "number of the champion's pipeline, 0 to 7; absent if it is of none"),
    ("final/reason", TEXT, "why the run failed"),
    ("final/test_fitness", _FITNESS, "the champion's, on the test slice"),
    ("final/test_quality", _FITNESS, "its quality part: perplexity and accuracy alone"),
    ("final/beats_sources_and_base", "true or false", "above each of them, 95 %, paired"),
    ("final/beats_best_baseline", "true or false", "above the best baseline, 95 %, paired"),
    ("final/best_baseline", TEXT, "the baseline with the most fitness on the test slice"),
    ("final/verdict", TEXT, "the comparison in a sentence"),
    ("final/lineage_digest", TEXT, "SHA-256 of what the result depends on"),
    ("final/chain_head", TEXT, "hash of the event that the result stands on"),
)
_CONFIG = (
    ("run", TEXT, "name of the run"),
    ("owner", TEXT, "user who submitted it"),
    ("forked_from", TEXT, "run and event that it was forked at: PARENT@VERSION"),
    ("models", TEXT, "the sources, each by Hub id or name"),
    ("base_model", TEXT, "the base, by Hub id or name"),
    ("strategy_version", TEXT, "strategy with its version"),
    ("digests.{model}", TEXT, "BLAKE3 of the weights of a source or the base"),
    ("data_digest", TEXT, "BLAKE3 of the items"),
    ("parameters", "count", "parameters of a model"),
    ("profile.device", TEXT, "device that the run is measured on"),
    ("profile.dtype", TEXT, "dtype of the weights"),
    ("profile.threads", "count", "threads of a process"),
    ("profile.batch_tokens", "tokens", "tokens of a batch"),
    ("profile.attention", TEXT, "implementation of attention"),
    ("profile.machine", TEXT, "processor with its vector instructions, and the GPU if it is used"),
    ("profile.torch", TEXT, "version of torch"),
    ("profile.transformers", TEXT, "version of transformers"),
    ("profile.numpy", TEXT, "version of numpy"),
    ("profile.evaluation", TEXT, "dtype that evaluation computes in; empty: that of the weights"),
    ("profile.compiled", TEXT, "compiler of batches of windows; empty: they are not compiled"),
)
_RESULT = (
    ("run", TEXT, "name of the run"),
    ("candidate", TEXT, "recipe id of the champion"),
    ("pipeline", TEXT, "how it was made, in words"),
    ("digest", TEXT, "BLAKE3 of its weights"),
    ("score", _FITNESS, "its fitness on the selection slice"),
    ("chain_head", TEXT, "hash of the event that the result stands on"),
    ("lineage", TEXT, "its recipe and those that it comes from, a line each"),
    ("recipe.{field}", "that of the field", "its recipe: kind, inputs, technique, genes, seed"),
)


class MergeTracking(Tracking[RunState]):
    """Tracker rows of merging runs."""

    @override
    def names(self) -> list[TrackedName]:
        rows = [TrackedName(*row) for row in _ROWS]
        summary = [TrackedName(*row, "summary") for row in _SUMMARY]
        config = [TrackedName(*row, "config") for row in _CONFIG]
        config += [
            TrackedName(setting.name, SETTING, setting.description, "config") for setting in settings()
        ]
        result = [TrackedName(*row, "result") for row in _RESULT]
        return [*rows, STATUS, *summary, *config, INSIDE, *result]

    @override
    def parts(self, state: RunState) -> Parts:
        started, champion = state.started, state.champion
        pools = started.pools.values() if started else ()
        recipe = state.recipes[champion].model_dump(mode="json") if champion else {}
        return {
            "domain": {domain for pool in pools for domain in pool},
            "pipeline": [str(number) for number in range(len(PIPELINES))],
            "model": [model.name for model in (started.base, *started.sources)] if started else (),
            "field": list(tracking.names(recipe)),
        }

    @override
    def config(self, state: RunState) -> Plain:
        """Return {name: value} of settings, models and data, without paths, addresses or keys."""
        assert state.submitted
        settings: dict[str, object] = {
            "run": state.run,
            "owner": state.submitted.owner,
            "forked_from": report.origin(state),
            **state.submitted.config.flat(),
            "models": [model.hub_id or model.name for model in state.submitted.sources],
        }
        if state.submitted.base is not None:
            settings["base_model"] = state.submitted.base.hub_id or state.submitted.base.name
        if state.started is not None:
            every = (state.started.base, *state.started.sources)
            settings |= {
                "strategy_version": state.version_of(state.generation),
                "digests": {model.name: model.digest for model in every},
                "data_digest": state.started.data_digest,
                "parameters": state.started.base.parameters,
                "profile": state.started.profile.model_dump(mode="json"),
            }
        return {name: value for name, value in settings.items() if value is not None}

    @override
    def rows(self, state: RunState, after: int = -1) -> list[tuple[int, dict[str, Value]]]:
        combos, generation_rows = _Combos(), []
        ids_by_generation: dict[int, list[str]] = {}
        for (generation, _), candidate in state.candidates.items():
            ids_by_generation.setdefault(generation, []).append(candidate.recipe_id)
        for generation in sorted(state.generations):
            combos.add(state, generation, ids_by_generation.get(generation, []))
            if generation > after:
                row = _row(state, generation) | _domains(state, generation) | combos.told()
                generation_rows.append((generation, _known(row)))
        return generation_rows

    @override
    def summary(self, state: RunState) -> dict[str, Value]:
        """Return {name: value} of the last row, the champion and, at the end, the result (`final/…`).

        The summary is computed here, because the tracker's own aggregates do not survive a resume.
        """
        last = max(state.generations, default=-1)
        figures: dict[str, object] = {}
        for _, row in self.rows(state, last - 1):
            figures |= row
        figures |= {"status": state.status, "champion": state.champion}
        if state.ended:
            figures |= {f"final/{name}": value for name, value in _final(state).items()}
        return _known(figures)

    @override
    def result(self, state: RunState) -> dict[str, object] | None:
        record = champion(state)
        if record is None:
            return None
        names = ("run", "candidate", "pipeline", "digest", "score", "chain_head", "lineage")
        metadata = {name: record[name] for name in names} | {
            "recipe": record["recipes"][record["candidate"]]
        }
        return {"metadata": metadata, "file": MARK, "content": record}
