"""Runs in a real store whose tasks are answered by the fake world: whole runs in a second."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

from agent_forge.events import EventStore, New
from agent_forge.evomerge.recipes.recipe import parents
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs import keys
from agent_forge.runs.history import repository
from agent_forge.runs.kinds.decide import decide
from agent_forge.runs.streams import stream
from testing.worlds.fake_world import RUN, World, small


class Bred:
    """Quality that candidates have from their parents, a little better or worse: curves that rise, and
    fronts of several points, since what is gained in perplexity is partly lost in accuracy.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._known: dict[str, tuple[float, float]] = {}

    def _of(self, id_: str) -> tuple[float, float]:
        """Return (nats a token, share of hits) of a recipe; they follow from its id and its parents."""
        if id_ not in self._known:
            self._known[id_] = self._bred(id_)
        return self._known[id_]

    def _bred(self, id_: str) -> tuple[float, float]:
        chance, trade = (keys.key(what, id_) / 2**128 - 0.5 for what in ("quality", "trade"))
        recipe = self._state.recipes.get(id_)
        given = [self._of(one) for one in parents(recipe)] if recipe is not None else []
        if not given:
            return 2.0 + 0.1 * chance, 0.3 + 0.05 * trade
        rate = fmean(rate for rate, _ in given) - 0.01 + 0.1 * chance + 0.05 * trade
        return rate, fmean(share for _, share in given) + 0.002 - 0.05 * chance + 0.1 * trade

    def rate(self, id_: str) -> float:
        """Return nats a token."""
        return self._of(id_)[0]

    def skill(self, id_: str) -> float:
        """Return the share of tokens that are hit."""
        return min(0.95, max(0.05, self._of(id_)[1]))


def submit(
    store: EventStore, run: str = RUN, owner: str = "ada", labels: tuple[str, ...] = (), **settings: Any
) -> str:
    """Record that a run is wanted."""
    world = World(small(**settings))
    assert world.state.submitted
    changes = {"run": run, "owner": owner, "labels": labels}
    event = world.state.submitted.model_copy(update=changes)
    store.append(stream("evomerge", run), 0, [New(event, f"{run}/submitted")])
    return run


def finish(
    store: EventStore,
    run: str = RUN,
    stop: Callable[[RunState], bool] = lambda state: False,
    varied: bool = False,
    appended: Callable[[list[New]], object] = lambda new: None,
) -> RunState:
    """Carry a run on until it has ended or `stop`; `varied` gives candidates their parents' quality.

    `appended` is called with the events of each append.
    """
    world, state = World(), RunState()
    if varied:
        bred = Bred(state)
        world.quality, world.skill = bred.rate, bred.skill
    while True:
        known = bool(state.version)
        state.absorb(repository.news(store, state) if known else repository.history(store, run))
        world.state = state
        decision = decide(state)
        if state.ended or stop(state):
            return state
        new = list(decision.facts) or [
            New(world.answer(task), f"{run}/{task.key}") for task in decision.tasks[:1]
        ]
        store.append(stream("evomerge", run), state.version, new)
        appended(new)


#: Name and settings of a run that `whole` carried out → its appends after the first, but the last.
_APPENDS: dict[str, list[list[New]]] = {}


def whole(store: EventStore, run: str = RUN, **settings: Any) -> RunState:
    """Submit a run and carry it to its end; return its state.

    A process computes each run once: what follows from name and settings is appended as it was. The
    last append has the head of the log's chain in it, and so the times.
    """
    submit(store, run, **settings)
    asked = repr((run, sorted(settings.items())))
    if asked not in _APPENDS:
        made: list[list[New]] = []
        state = finish(store, run, appended=made.append)
        _APPENDS[asked] = made[:-1]
        return state
    version = 1
    for new in _APPENDS[asked]:
        version = store.append(stream("evomerge", run), version, new).rows[-1].version
    return finish(store, run)
