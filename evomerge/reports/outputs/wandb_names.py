"""Names that merging runs send to a tracker, with unit and meaning. Pure.

`wandb_rows.py` makes the values.
"""

from __future__ import annotations

from evomerge.recipes.recipe import PIPELINES
from evomerge.run.state import RunState
from evomerge.settings_table import settings
from runs.kinds import tracking
from runs.kinds.tracking import INSIDE, SETTING, STATUS, TEXT, Parts, TrackedName

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


def names() -> list[TrackedName]:
    """Return every name that a merging run sends."""
    rows = [TrackedName(*row) for row in _ROWS]
    summary = [TrackedName(*row, "summary") for row in _SUMMARY]
    config = [TrackedName(*row, "config") for row in _CONFIG]
    config += [
        TrackedName(setting.name, SETTING, setting.description, "config") for setting in settings()
    ]
    result = [TrackedName(*row, "result") for row in _RESULT]
    return [*rows, STATUS, *summary, *config, INSIDE, *result]


def parts(state: RunState) -> Parts:
    """Return the values that the parts in braces of `names` have in a run."""
    started, champion = state.started, state.champion
    pools = started.pools.values() if started else ()
    recipe = state.recipes[champion].model_dump(mode="json") if champion else {}
    return {
        "domain": {domain for pool in pools for domain in pool},
        "pipeline": [str(number) for number in range(len(PIPELINES))],
        "model": [model.name for model in (started.base, *started.sources)] if started else (),
        "field": list(tracking.names(recipe)),
    }
