"""Look-up of runs and their models as users write them: by id, name, or beginning of an id. No torch.

Models are RUN, RUN:MODEL or RUN/MODEL. `RUN:champion` and `RUN/champion` are the result of any kind of
run, as is `RUN` alone. `RUN/MODEL` looks like a path and like a Hub id. So a folder of that path comes
first (`weights.folders.sources`), then a run of that whole name, then the Hub; `owner/name@revision`
is always a Hub id.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

from agent_forge.events import EventStore
from agent_forge.runs.errors import AmbiguousError, NotFoundError
from agent_forge.runs.history import repository
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries

S = TypeVar("S", bound=State)


def whole_name(store: EventStore, run: str) -> str | None:
    """Return the id of the run of this whole id or name; None if there is none."""
    is_known = repository.stream_of(store, run) is not None
    return run if is_known else queries.named(store, run)


def full_name(store: EventStore, run: str) -> str:
    """Return the id of the run of this id, name or beginning of an id. Raises NotFoundError.

    Raises AmbiguousError if several ids begin so.
    """
    named = whole_name(store, run)
    if named is not None:
        return named
    try:
        return repository.full_name(store, run)
    except AmbiguousError:
        raise
    except NotFoundError as error:
        raise NotFoundError(f"run {run!r} is not known; {_hint(store, run)}") from error


def _hint(store: EventStore, run: str) -> str:
    """Return a sentence with the names that may have been meant, or else with the newest names."""
    names = [row["name"] for row in queries.page(store, 1000, parts=False)[0]]
    alike = difflib.get_close_matches(run, names, n=3)
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    if not names:
        return "there are no runs here. List them with `forge runs`."
    return f"the newest runs are {', '.join(names[:5])}. List them with `forge runs`."


def load(store: EventStore, run: str, showing: bool = False) -> Any:
    """Return the state of the run of this id, name or beginning of an id. Raises NotFoundError.

    `showing` is as for `repository.load`. Raises AmbiguousError, too.
    """
    return repository.load(store, full_name(store, run), showing)


def load_of(kind: type[S], store: EventStore, run: str, showing: bool = False) -> S:
    """Return the state of a run as `load` does; raise ConfigError if its class is not `kind`.

    It also raises what `load` raises.
    """
    return repository.load_of(kind, store, full_name(store, run), showing)


T = TypeVar("T")
#: The name of a run's result, for every kind of run.
RESULT = "champion"


def find(store: EventStore, text: str) -> tuple[str, str] | None:
    """Return (run, model) that a text means, model "" for the run's result; None: no run's model.

    A text is RUN, a whole name, or RUN:MODEL or RUN/MODEL. Raise NotFoundError or AmbiguousError for
    RUN:MODEL of no run.
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
    """Return `look_up(model)`; if that is not found and `model` is "champion", `look_up("")`.

    Raise what `look_up` raises.
    """
    try:
        return look_up(model)
    except NotFoundError:
        if model != RESULT:
            raise
    return look_up("")
