"""Names of a run's models, as users write them: RUN, RUN:MODEL or RUN/MODEL. Imports no torch.

`RUN:champion` and `RUN/champion` are the result of any kind of run, as is `RUN` alone. `RUN/MODEL`
looks like a path and like a Hub id. So a folder of that path comes first (`weights.folders.sources`),
then a run of that whole name, then the Hub; `owner/name@revision` is always a Hub id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from events import EventStore
from runs.errors import NotFoundError
from runs.lists.finding import full_name, whole_name

T = TypeVar("T")

#: The name of a run's result, for every kind of run.
RESULT = "champion"


def find(store: EventStore, text: str) -> tuple[str, str] | None:
    """Return (run, model) that a text means, the model empty for the run's result.

    None if it is neither the whole name of a run nor RUN:MODEL nor RUN/MODEL. Raise NotFoundError or
    AmbiguousError for RUN:MODEL of no run.
    """
    run, sign, model = split(text)
    if sign == ":":
        return full_name(store, run), model
    if (sign and not model) or "@" in text:
        return None
    named = whole_name(store, run)
    return None if named is None else (named, model)


def split(text: str) -> tuple[str, str, str]:
    """Return (run, sign, model) of a text; sign is ":", "/" or empty, and the model has only colons."""
    sign = next((letter for letter in text if letter in ":/"), "")
    run, _, model = text.partition(sign) if sign else (text, "", "")
    return run, sign, model.replace("/", ":")


def looked_up(look_up: Callable[[str], T], model: str) -> T:
    """Return `look_up(model)`; if a run has no model called "champion", that name is its result.

    Raise what `look_up` raises.
    """
    try:
        return look_up(model)
    except NotFoundError:
        if model != RESULT:
            raise
    return look_up("")
