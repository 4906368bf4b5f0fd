"""Routes of the list of pipelines, and of what waits for the user."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from agent_forge.api.access.authorization import VIEWER
from agent_forge.api.routes.runs import desk_of, tagged
from agent_forge.api.schemas import listings as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.runs.lists import stages
from agent_forge.runs.lists.stages import ListFilters
from agent_forge.worker.commands.accounts import User
from agent_forge.worker.queue.device_table import Device, named_devices

router = APIRouter(tags=["pipelines"])

#: Columns of a pipeline's row in an answer, beside those that are made here.
SHOWN = ("run", "name", "kind", "status", "owner", "priority", "past", "submitted_at", "updated_at")

Sort = Literal["run", "status", "owner", "done", "quality", "bytes", "spent", "updated_at"]


@router.get("/pipelines", response_model=schemas.Pipelines, dependencies=[Depends(VIEWER)])
def listed(
    request: Request,
    status: Literal["submitted", "running", "paused", "completed", "failed", "cancelled"] | None = None,
    owner: str | None = Query(None, max_length=64),
    q: str = Query("", max_length=200, description="Part of a name, an owner or a label."),
    limit: int = Query(50, ge=1, le=200),
    before: int = Query(0, ge=0, lt=1 << 62, description="`next` of the page before."),
    sort: Sort | None = Query(None, description="Default: the newest first."),
    order: Literal["up", "down"] = "down",
) -> Response:
    """List the runs whose tasks are runs, with their stages, the newest first or sorted by a column."""
    chosen = ListFilters(status, owner, q, sort, order == "down")
    rows, total = stages.page(desk_of(request).store, limit, before, chosen)
    after = before + len(rows)
    more = str(after) if rows and after < total else None
    return tagged(request, {"pipelines": [_told(r) for r in rows], "total": total, "next": more})


def _told(row: Json) -> Json:
    return {
        **{name: row[name] for name in SHOWN},
        "labels": row["labels"].split(),
        "done": row["done"] or 0,
        "of": len(row["stages"]),
        "stages": row["stages"],
        "undecided": row["undecided"],
        "quality": row["quality"],
        "bytes": row["bytes"],
        "spent": row["spent"],
    }


@router.get("/needs", response_model=schemas.Needs)
def needs(
    request: Request,
    user: User = Depends(VIEWER),
    limit: int = Query(20, ge=1, le=200, description="Runs at most, the newest failure first."),
) -> Json:
    """List what waits for the user: failed runs, gates that have stopped a pipeline, workers gone.

    An admin's runs are those of all users; a viewer may ask no run for anything.
    """
    desk = desk_of(request)
    if not user.may("submitter"):
        return {"runs": [], "total": 0, "workers": []}
    owner = None if user.may("admin") else user.name
    rows, total = stages.needing(desk.store, owner, limit)
    gone = [device for device in named_devices(desk.store, desk.roster) if not device.living]
    return {
        "runs": [_needing(row) for row in rows],
        "total": total,
        "workers": [_gone(device) for device in gone],
    }


def _needing(row: Json) -> Json:
    shown = ("run", "name", "kind", "owner", "version", "updated_at", "stopped")
    return {**{name: row[name] for name in shown}, "reason": row["reason"] or ""}


def _gone(device: Device) -> Json:
    shown = ("name", "device", "run", "run_name", "seconds")
    fields = {name: getattr(device, name) for name in shown}
    return {**fields, "since": device.now - device.seconds}
