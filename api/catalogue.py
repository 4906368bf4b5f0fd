"""Routes of the model registry, the queue, workers, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from api import shapes, views
from api.access import ADMIN, SUBMITTER, VIEWER
from api.problems import Problem
from api.runs import desk_of, tagged, told
from evomerge import listing, models
from worker import waiting
from worker.accounts import User

router = APIRouter(tags=["models, queue, workers"])


@router.get("/models", response_model=shapes.ModelList, dependencies=[Depends(VIEWER)])
@router.get("/models/list", response_model=shapes.ModelList, dependencies=[Depends(VIEWER)])
def listed(
    request: Request,
    kind: Literal["base", "source", "specialist", "champion"] | None = None,
    q: str = Query("", max_length=200),
    limit: int = Query(200, ge=1, le=1000),
) -> dict[str, Any]:
    """The models that runs were given or made, and those that were registered."""
    rows, total = models.listed(desk_of(request).store, kind, q, limit)
    return {"models": rows, "total": total}


@router.get("/models/{id}", response_model=shapes.Model, dependencies=[Depends(VIEWER)])
def shown(request: Request, id: str) -> dict[str, Any]:
    """One model."""
    return models.find(desk_of(request).store, id)


@router.post("/models", status_code=201, response_model=shapes.Model)
@router.post("/models/create", status_code=201, response_model=shapes.Model)
def registered(
    request: Request, model: shapes.NewModel, user: User = Depends(SUBMITTER)
) -> Response:
    """Register a model folder; its weights are read and hashed."""
    from worker import catalogue

    store, options = desk_of(request).store, request.app.state.options
    place = Path(options.place(model.path))
    if not place.is_absolute():
        raise Problem(
            422, "That cannot be used", f"{model.path!r} is no folder that this server may read."
        )
    id_ = catalogue.register(
        store, place, model.name, model.kind, model.metrics, model.lineage, user.name
    )
    return JSONResponse(models.find(store, id_), 201, {"Location": f"/models/{id_}"})


@router.delete("/models/{id}", response_model=shapes.Model)
def removed(
    request: Request,
    id: str,
    reason: str | None = Query(None, max_length=2000),
    user: User = Depends(ADMIN),
) -> dict[str, Any]:
    """Take a model out of the registry; no file is touched."""
    from worker import catalogue

    return catalogue.remove(desk_of(request).store, id, reason, user.name)


@router.get("/queue", dependencies=[Depends(VIEWER)])
def queue(request: Request, limit: int = Query(200, ge=1, le=1000)) -> dict[str, Any]:
    """The runs that have not ended, in their order, and what they wait for."""
    store = desk_of(request).store
    devices = desk_of(request).roster.devices()
    rows = listing.queue(store, limit)
    return {"runs": [{**told(row), "waits_for": waiting.reason(row, devices)} for row in rows]}


@router.get("/workers", dependencies=[Depends(VIEWER)])
def workers(request: Request) -> dict[str, Any]:
    """Every device, and what it is at."""
    devices = desk_of(request).roster.devices()
    return {
        "workers": [
            {
                "name": d.name, "device": d.device, "status": d.status if d.living else "gone",
                "run": d.run, "task": d.task, "done": d.done, "seconds": d.seconds,
                "living": d.living, "labels": sorted(d.offer.labels), "memory": d.offer.memory,
                "profile": d.offer.profile,
            }
            for d in devices
        ]
    }  # fmt: skip


@router.get("/settings", dependencies=[Depends(VIEWER)])
def settings(request: Request) -> Response:
    """What a run may be submitted with: JSON Schema, defaults, strategies."""
    known: dict[str, Any] | None = getattr(request.app.state, "settings", None)
    if known is None:
        known = request.app.state.settings = views.settings()
    return tagged(request, known)
