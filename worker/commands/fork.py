"""Forks of runs: the new run refers to the parent's history up to a place, and continues on its own."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from agent_forge.events import Cause, Envelope, EventStore, New, chain
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ConflictError, TamperedError
from agent_forge.runs.history.repository import at_place, fold, history
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists.finding import full_name
from agent_forge.runs.streams import run_of, stream
from agent_forge.runs.system.plain_text import check
from agent_forge.worker.append import actor
from agent_forge.worker.commands.submit import keyed_name, new_name


@dataclass(frozen=True)
class Branch:
    """A planned fork: the run, the place, the state there, and the fork's settings."""

    run: str
    place: int
    kind: Kind
    state: State
    last: Envelope
    changes: dict[str, object]
    config: BaseModel


def plan(
    store: EventStore, run: str, place: int | None, generation: int | None, changes: dict[str, object]
) -> Branch:
    """Return a Branch, the checked plan of a fork at a place or in a generation; record nothing.

    `generation` forks at the place where that generation is measured but not closed yet, so that
    the fork's settings close it. Raises ConfigError, NotFoundError, TamperedError.
    """
    run = full_name(store, run)
    rows = list(history(store, run))
    if (place is None) == (generation is None):
        raise ConfigError("say where to fork: --at POSITION or --generation G, one of them.")
    kind = kinds.kind_of(rows[-1].stream)
    assert kind
    if place is None:
        place = kind.forks.place_of(rows, generation or 0)
    past = rows[: at_place(rows, place)]
    _check_chain(past)
    state = fold(past)
    assert state.submitted
    config = kind.settings.changed(state.submitted.config, changes)
    changes = kind.settings.changes(state.submitted.config, config)
    kind.forks.check(state, changes)
    return Branch(run, place, kind, state, past[-1], changes, config)


def _check_chain(past: list[Envelope]) -> None:
    for name in dict.fromkeys(row.stream for row in past):
        findings = chain.check([row for row in past if row.stream == name])
        if findings:
            raise TamperedError(
                f"the history cannot be forked: {findings[0].message}. `forge verify` says more."
            )


def fork(
    store: EventStore,
    branch: Branch,
    output_dir: str | None = None,
    by: str | None = None,
    reason: str | None = None,
    key: str | None = None,
) -> str:
    """Record the fork; return the new run's name. The parent's events are not copied.

    The same `key` from the same user means the same fork. Raises ConflictError if the key made
    another fork.
    """
    check(reason or "", "the reason")
    run = new_name() if key is None else keyed_name(key, f"fork of {by or actor()}")
    kind = branch.kind
    event = kind.forked(
        run=run,
        owner=by or actor(),
        parent=run_of(branch.last.stream),
        version=branch.last.version,
        head=branch.last.hash,
        changes=branch.changes,
        config=branch.config,
        output_dir=output_dir,
        reason=reason,
        **kind.forks.fields(branch.config, branch.changes),
    )
    who = Cause(actor=by or actor())
    done = store.append(stream(kind.name, run), 0, [New(event, f"{run}/forked")], who)
    if not done.fresh and kind.state.registry.load(done.rows[0]) != event:
        raise ConflictError(f"key {key!r} made another fork, run {run}: use another key.")
    return run
