"""The part of an audit that needs weights: are the models those that were measured?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from phases.measure.events import MeasureState
from phases.measure.tasks.execute import Context
from runs.errors import ForgeError
from runs.history.audit import Finding
from weights.storage.weight_cache import Artifacts


def same_weights(
    state: MeasureState, cache: Artifacts, ids: Sequence[str], say: Callable[[str], None]
) -> Iterator[Finding]:
    """Yield `unchecked` for each model that cannot be opened as it was pinned."""
    context = Context(state, cache)
    for source in state.started.sources:
        if source.recipe_id not in ids:
            continue
        try:
            context.pinned(source.recipe_id)
        except ForgeError as error:
            yield Finding("unchecked", "weights", str(error))
        else:
            say(f"the weights of {source.name} have the digest {source.digest[:12]} as recorded")
