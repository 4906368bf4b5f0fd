"""Routes that ask something of a run: pause, resume, cancel, retry, priority, a kind's own actions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Header, Request

from api.access.authorization import SUBMITTER, own
from api.routes.runs import desk_of
from api.schemas import bodies as schemas
from api.state.run_cache import Desk
from events import Event
from runs import imported_pasts
from runs.record import user_events as events
from worker.commands.accounts import User
from worker.commands.control import act, control
from worker.tasks import leftovers

router = APIRouter(tags=["asking"])

KEY = Header(
    None,
    alias="Idempotency-Key",
    min_length=1,
    max_length=200,
    description="The same key means the same request: it is carried out once.",
)


def ask(desk: Desk, run: str, user: User, event: Event, key: str | None = None) -> dict[str, Any]:
    """Record what a user asks of a run. Raises Problem 403 for a run of others, ForgeError."""
    name = desk.name(run)
    owned(desk, name, user)
    before = control(desk.store, name, event, user.name, key)
    if isinstance(event, events.Cancelled):
        leftovers.cancelled(desk.store, desk.home, before)
    return {"run": name, "before": before.status, "asked": event.type}


def owned(desk: Desk, name: str, user: User) -> None:
    """Raise Problem 403 if the run belongs to another user."""
    with desk.state(name) as state:
        owner = state.submitted.owner if state.submitted else ""
        owner = "" if state.head in imported_pasts.heads(desk.store) else owner
        first = next(desk.store.iterate(state.stream, upto=1))
    own(user, owner, first.position)


@router.post("/runs/{run}/pause", response_model=schemas.Asked)
def pause(
    request: Request,
    run: str,
    why: schemas.Reason,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:
    """Pause a run; tasks under way are finished."""
    return ask(desk_of(request), run, user, events.Paused(reason=why.reason), key)


@router.post("/runs/{run}/resume", response_model=schemas.Asked)
def resume(
    request: Request,
    run: str,
    why: schemas.Reason,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:
    """Resume a paused run."""
    return ask(desk_of(request), run, user, events.Resumed(reason=why.reason), key)


@router.post("/runs/{run}/cancel", response_model=schemas.Asked)
def cancel(
    request: Request,
    run: str,
    why: schemas.Reason,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:
    """End a run for good."""
    return ask(desk_of(request), run, user, events.Cancelled(reason=why.reason), key)


@router.post("/runs/{run}/retry", response_model=schemas.Asked)
def retry(
    request: Request,
    run: str,
    why: schemas.Reason,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:
    """Forget failed attempts, so that they are made again."""
    return ask(desk_of(request), run, user, events.Retried(reason=why.reason), key)


@router.post("/runs/{run}/priority", response_model=schemas.Asked)
def priority(
    request: Request,
    run: str,
    body: schemas.Priority,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:
    """Change a run's priority."""
    event = events.PriorityChanged(priority=body.priority, reason=body.reason)
    return ask(desk_of(request), run, user, event, key)


@router.patch("/runs/{run}", response_model=schemas.Asked)
def describe(
    request: Request,
    run: str,
    words: schemas.Words,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:
    """Change a run's name, note or tags. Its id stays."""
    return ask(desk_of(request), run, user, events.Described(**words.model_dump()), key)


@router.post("/runs/{run}/actions/{action}", response_model=schemas.Asked)
def action(
    request: Request,
    run: str,
    action: str,
    body: schemas.Act,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> dict[str, Any]:
    """Do what only runs of a kind have, such as `override` of a gate that has stopped a pipeline."""
    return ask_action(desk_of(request), run, user, action, body, key)


def ask_action(
    desk: Desk, run: str, user: User, action: str, body: schemas.Act, key: str | None = None
) -> dict[str, Any]:
    """Record an action of a kind's own. Raises Problem 403 for a run of others, ForgeError."""
    name = desk.name(run)
    owned(desk, name, user)
    before = act(desk.store, name, action, body.about, body.reason, user.name, key)
    return {"run": name, "before": before.status, "asked": action}
