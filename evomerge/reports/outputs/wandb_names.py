"""Names that merging runs send to a tracker, with unit and meaning. Pure.

`wandb_rows.py` makes the values.
"""

from __future__ import annotations

from evomerge.settings_table import settings
from runs.kinds.tracking import STATUS, TEXT, TrackedName

#: A fitness: a weighted mean of components, 1 for the best source's.
_FITNESS = "fitness"
_ROWS = (
    ("generation", "count", "number of the generation; the step of every row"),
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
    ("forked_from", "setting", "run and generation of a fork"),
    ("models", "setting", "sources, by name or Hub id"),
    ("base_model", "setting", "base, by name or Hub id"),
    ("strategy_version", TEXT, "strategy with its version"),
    ("digests", "setting", "name of a model → BLAKE3 of its weights"),
    ("data_digest", TEXT, "BLAKE3 of the items"),
    ("parameters", "count", "parameters of a model"),
    ("profile", "setting", "what can change the last bit of a number: device, dtype, libraries"),
)
_RESULT = (
    ("run", TEXT, "name of the run"),
    ("candidate", TEXT, "recipe id of the champion"),
    ("pipeline", TEXT, "how it was made, in words"),
    ("digest", TEXT, "BLAKE3 of its weights"),
    ("score", _FITNESS, "its fitness on the selection slice"),
    ("chain_head", TEXT, "hash of the event that the result stands on"),
    ("lineage", TEXT, "its recipe and those that it comes from, a line each"),
    ("recipe", "setting", "its recipe"),
)


def names() -> list[TrackedName]:
    """Return every name that a merging run sends."""
    rows = [TrackedName(*one) for one in _ROWS]
    summary = [TrackedName(*one, "summary") for one in _SUMMARY]
    config = [TrackedName(*one, "config") for one in _CONFIG]
    config += [TrackedName(one.name, "setting", one.description, "config") for one in settings()]
    return [*rows, STATUS, *summary, *config, *(TrackedName(*one, "result") for one in _RESULT)]
