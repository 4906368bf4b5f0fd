"""Forecast of a measurement: some documents of each domain are scored here, and nothing is recorded."""

from __future__ import annotations

from phases.measure.events import MeasureState, Submitted
from phases.measure.tasks.execute import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import least, timed
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads

#: Documents of a domain that are scored.
PROBED = 8


def forecast(submitted: Submitted, cache: Artifacts) -> Forecast:
    """Return what a measurement costs here. Raises the errors of a start."""
    set_threads()
    state = MeasureState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    some = {domain: texts[:PROBED] for domain, texts in context.texts.items()}
    first, sizes = state.started.sources[0].recipe_id, dict[str, tuple[int, ...]]()
    scoring = least(lambda: sizes.update(context.scored(first, some)[1]))
    every = (text for texts in context.texts.values() for text in texts)
    whole = sum(len(one.text.encode("utf-8", "replace")) for one in every)
    read, models = sum(map(sum, sizes.values())), len(state.started.sources)
    largest = max(source.parameters for source in state.started.sources)
    return Forecast(
        Amount(
            opening + models * scoring * whole / read,
            f"timed here: {read:,} bytes of text took one model {duration(scoring)}; {models} models "
            f"are to read {whole:,} bytes each; the start {duration(opening)}",
        ),
        Amount(0.0, "it leaves figures in the log only"),
        Amount(
            8 * largest,
            "counted: the largest model's weights, twice; activations come on top",
        ),
    )
