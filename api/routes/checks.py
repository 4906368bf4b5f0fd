"""Routes over the checks of a run: what was verified when and by whom, and a new check."""

from __future__ import annotations

import asyncio
import sys

from fastapi import APIRouter, Depends, Request

from agent_forge.api.access.authorization import SUBMITTER, VIEWER
from agent_forge.api.routes.runs import desk_of
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.api.state.run_cache import RunReader
from agent_forge.events import chain
from agent_forge.runs import kinds
from agent_forge.runs.history import repository
from agent_forge.runs.lists import checks
from agent_forge.worker.commands.accounts import User

router = APIRouter(tags=["runs"])

#: Checks that are listed, the newest.
LISTED = 20


@router.get("/runs/{run}/checks", response_model=schemas.Checks, dependencies=[Depends(VIEWER)])
def listed(request: Request, run: str) -> Json:
    """List the newest checks of a run's history, the newest first, and what is under way."""
    desk = desk_of(request)
    name = desk.name(run)
    history = list(checks.of_run(desk.store, name))[::-1]
    work, job = request.app.state.work, f"check {name}"
    reproduced = next((check for check in history if check.event.reproduced), None)
    broken = next((check for check in history if check.event.outcome == "broken"), None)
    return {
        "checks": [_shown(check) for check in history[:LISTED]],
        "broken": broken and _shown(broken),
        "reproduced": reproduced and _shown(reproduced),
        "changed": _changed(desk, name, history),
        "running": work.status(job) == "running",
        "error": work.failed(job),
    }


def _shown(check: checks.RecordedCheck) -> Json:
    event = check.event
    return {
        "by": check.by,
        "at": check.at,
        "outcome": event.outcome,
        "reproduced": event.reproduced,
        "events": event.events,
        "version": event.version,
        "rebuilt": event.rebuilt,
        "checks": list(event.checks),
        "errors": event.errors,
        "findings": [finding.model_dump() for finding in event.findings],
    }


def _changed(desk: RunReader, run: str, history: list[checks.RecordedCheck]) -> str | None:
    """Return a sentence if the last event that a check found intact differs now; None if not."""
    check = next((c for c in history if c.event.head and c.event.outcome != "broken"), None)
    if check is None or check.event.head is None:
        return None
    stream, version = repository.named_stream(desk.store, run), check.event.version
    last = min(version, desk.store.version(stream))
    rows = list(desk.store.iterate(stream, after=last - 1, upto=last))
    fault = chain.missing_tail(rows, version, check.event.head, "the last check")
    return fault and fault.message


@router.post("/runs/{run}/checks", status_code=202, response_model=schemas.Checks)
async def begun(
    request: Request, run: str, order: schemas.NewCheck, user: User = Depends(SUBMITTER)
) -> Json:
    """Verify a run in a process beside the server, which records the outcome, good or bad."""
    desk = desk_of(request)

    def look() -> tuple[str, bool]:
        name = desk.name(run)
        kind = kinds.kind_of(repository.named_stream(desk.store, name))
        return name, kind is not None and kind.children is None

    name, makes = await asyncio.to_thread(look)
    command = [sys.executable, "-m", "agent_forge.worker.tasks.verify_run", name, user.name]
    command += ["champion"] if order.rebuild and makes else []
    await request.app.state.work.begin(f"check {name}", command, again=True, by=user.name)
    return await asyncio.to_thread(listed, request, name)
