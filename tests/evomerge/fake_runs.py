"""Runs in a real store whose tasks are answered by the fake world: whole runs in a second."""

from __future__ import annotations

from collections.abc import Callable

from events import EventStore, New
from evomerge import log
from evomerge.run import decide
from evomerge.state import RunState, absorb
from tests.evomerge.fake_world import RUN, World, small


def submit(store: EventStore, run: str = RUN, **settings: object) -> str:
    """Record that a run is wanted."""
    world = World(small(**settings))
    assert world.state.submitted
    event = world.state.submitted.model_copy(update={"run": run})
    store.append(log.stream(run), 0, [New(event, f"{run}/submitted")])
    return run


def finish(
    store: EventStore, run: str = RUN, stop: Callable[[RunState], bool] = lambda state: False
) -> RunState:
    """Carry a run on until it has ended or `stop`."""
    world, state = World(), RunState()
    while True:
        absorb(state, log.news(store, run, state))
        world.state = state
        decision = decide(state)
        if state.ended or stop(state):
            return state
        new = decision.facts or [
            New(world.answer(task), f"{run}/{task.key}") for task in decision.tasks[:1]
        ]
        store.append(log.stream(run), state.version, new)


def whole(store: EventStore, run: str = RUN, **settings: object) -> RunState:
    """A whole run."""
    submit(store, run, **settings)
    return finish(store, run)
