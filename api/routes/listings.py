"""Routes of the model registry, the queue, workers and settings; the check of a query's fields."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import HTTPConnection

from agent_forge.api.access.authorization import ADMIN, SUBMITTER, VIEWER, own
from agent_forge.api.problems import UNPROCESSABLE, HttpError
from agent_forge.api.routes.runs import desk_of, tagged, told
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.api.state import children, model_folders
from agent_forge.api.state.run_cache import RunReader
from agent_forge.events import EventsError, EventStore
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError, NotFoundError
from agent_forge.runs.kinds import asked, wording
from agent_forge.runs.lists import family, model_registry, queries
from agent_forge.runs.lists import model_registry as reports_model_registry
from agent_forge.weights.recipes import Source
from agent_forge.weights.storage import model_origin
from agent_forge.worker.commands import model_registry as commands_model_registry
from agent_forge.worker.commands.accounts import User
from agent_forge.worker.queue.device_table import Device, named_devices
from agent_forge.worker.queue.reporting import activity

router = APIRouter(tags=["models, queue, workers"])


@router.get("/models", response_model=schemas.ModelList, dependencies=[Depends(VIEWER)])
def listed(
    request: Request,
    kind: reports_model_registry.Listed | None = None,
    q: str = Query("", max_length=200),
    tag: str | None = Query(None, max_length=100),
    limit: int = Query(200, ge=1, le=1000),
) -> Json:
    """List the models that runs read or made, and the registered models."""
    store = desk_of(request).store
    rows, total = reports_model_registry.listed(store, kind, q, limit, tag)
    ids = [Source(digest=row["digest"]).id for row in rows]  # as measurements are given them
    bits = queries.measured(store, ids)
    for id_, row in zip(ids, rows, strict=True):
        row["metrics"] |= {"measured": bits[id_]} if id_ in bits else {}
    return {"models": [model_folders.sized(request.app.state, r) for r in rows], "total": total}


@router.get("/models/list", response_model=list[schemas.ListedModel], dependencies=[Depends(VIEWER)])
def documented(request: Request, limit: int = Query(200, ge=1, le=1000)) -> list[Json]:
    """List the same models in the source documents' form: an array, with `size`."""
    rows, _ = reports_model_registry.listed(desk_of(request).store, None, "", limit)
    return [{**row, "size": row["bytes"] or 0} for row in rows]


@router.get(
    "/models/{id:path}/lineage", response_model=schemas.ModelLineage, dependencies=[Depends(VIEWER)]
)
def model_lineage(request: Request, id: str) -> Response:
    """Return what a model was made from, run by run, back to given models or first weights.

    Empty for a model that no run of this log made.
    """
    desk = desk_of(request)
    generations = family.of_registered(desk.store, model_origin.entry(desk.store, id)["id"])
    tree = family.tree(generations, _lanes(desk, {generation.run for generation in generations}))
    ancestors = in_words(desk.store, generations)
    return tagged(request, {**ancestors, "tree": tree and tree.model_dump(mode="json")})


@router.get(
    "/models/{id:path}/measurements",
    response_model=schemas.ModelMeasurements,
    dependencies=[Depends(VIEWER)],
)
def model_measurements(request: Request, id: str) -> Response:
    """Return what the runs that made a model, or were given it, have measured of it."""
    desk = desk_of(request)
    entry = model_origin.entry(desk.store, id)
    digest, maker = entry["digest"], entry["run"]

    def read(run: str) -> model_registry.RunFigures:
        with desk.state(run) as state:
            view = lambda now: model_registry.of_state(now, digest)  # noqa: E731
            return desk.seen(run, f"measured {digest}", state, view)

    readings = model_registry.of_digest(desk.store, digest, read)
    runs = [
        {
            **reading._asdict(),
            # A run that casts a given model to its own dtype gets equal weights.
            "made": reading.made and maker in (None, reading.run),
            "run_name": queries.name(desk.store, reading.run),
            "measurements": [m.model_dump(mode="json") for m in reading.measurements],
        }
        for reading in readings.runs
    ]
    return tagged(request, {"runs": runs, "total": readings.total})


@router.get("/models/{id:path}", response_model=schemas.OwnedModel, dependencies=[Depends(VIEWER)])
def shown(request: Request, id: str) -> Json:
    """Return one model, by its id, its name or a name of a run's model (RUN:ROLE, RUN/champion)."""
    store = desk_of(request).store
    entry = model_origin.entry(store, id)
    owner = reports_model_registry.owner(store, entry["id"])
    return {**model_folders.sized(request.app.state, entry), "owner": owner[0] if owner else ""}


def _lanes(desk: RunReader, runs: set[str]) -> dict[str, str]:
    """Return run → name of its lane: the stage of a run that is another's task, else its name.

    If the stages are of several runs, the run's name stands before each stage.
    """
    parts = {run: part for run in sorted(runs) if (part := children.part_of(desk, run))}
    several = len({part["run"] for part in parts.values()}) > 1
    stages = {r: f"{p['name']} / {p['stage']}" if several else p["stage"] for r, p in parts.items()}
    return queries.names(desk.store, runs) | stages


def in_words(store: EventStore, generations: list[family.AncestorsInRun]) -> Json:
    """Return {"runs": a group for each run: its ancestors of a model, without recipes, each once}."""
    groups, names = [], queries.names(store, {generation.run for generation in generations})
    for run, ancestors in family.by_run(generations).items():
        rows = [{k: v for k, v in asdict(a).items() if k != "recipe"} for a in ancestors]
        groups.append({"run": run, "run_name": names.get(run, run), "ancestors": rows})
    return {"runs": groups}


@router.post("/models", status_code=201, response_model=schemas.Model)
async def registered(
    request: Request, model: schemas.NewModel, user: User = Depends(SUBMITTER)
) -> Response:
    """Register a model folder or GGUF file, read and hashed in a process beside the server."""
    store, options = desk_of(request).store, request.app.state.options
    place = Path(await asyncio.to_thread(options.model, model.path))
    if not place.is_absolute():
        detail = f"{model.path!r} is no folder or file that this server may read."
        raise HttpError(422, UNPROCESSABLE, detail)
    parents = await asyncio.to_thread(
        commands_model_registry.check, store, place, model.name, model.lineage, model.metrics
    )
    measurement = await request.app.state.readers.ask("measure", user.name, path=str(place))
    id_ = await asyncio.to_thread(
        commands_model_registry.record,
        store,
        commands_model_registry.ModelFacts(**measurement),
        model.name,
        model.kind,
        model.metrics,
        parents,
        user.name,
        not user.may("admin"),
        user.since,
    )
    body = await asyncio.to_thread(reports_model_registry.find, store, id_)
    return JSONResponse(body, 201, {"Location": f"/models/{id_}"})


@router.post("/models/create", status_code=201, response_model=schemas.MadeModel)
async def created(
    request: Request, model: schemas.CreatedModel, user: User = Depends(SUBMITTER)
) -> Response:
    """Register a model in the source documents' form: `{type, params}` → `{model_id, metadata}`."""
    response = await registered(request, model, user)
    fields = json.loads(bytes(response.body))
    union = {**fields, "model_id": fields["id"], "metadata": fields}
    return JSONResponse(union, 201, {"Location": response.headers["Location"]})


@router.patch("/models/{id}", response_model=schemas.Model)
def described(
    request: Request, id: str, words: schemas.ModelWords, user: User = Depends(SUBMITTER)
) -> Json:
    """Change the note or the tags of a model that belongs to the user; an admin changes any."""
    store = desk_of(request).store
    entry = model_origin.entry(store, id)
    owner, first = reports_model_registry.owner(store, entry["id"]) or ("", 0)
    own(user, owner, first)
    tags = None if words.tags is None else tuple(words.tags)
    commands_model_registry.describe(store, entry["id"], words.note, tags, user.name)
    return reports_model_registry.find(store, entry["id"])


@router.delete("/models/{id}", response_model=schemas.Model)
def removed(
    request: Request,
    id: str,
    reason: Annotated[schemas.Plain, Query(max_length=2000)] | None = None,
    user: User = Depends(ADMIN),
) -> Json:
    """Take a model out of the registry; no file is touched."""
    return commands_model_registry.remove(desk_of(request).store, id, reason, user.name)


@router.get("/queue", response_model=schemas.Queue, dependencies=[Depends(VIEWER)])
def queue(request: Request, limit: int = Query(200, ge=1, le=1000)) -> Json:
    """List the runs that have not ended, in their order, and what each waits for."""
    desk = desk_of(request)
    devices, held = named_devices(desk.store, desk.roster), desk.leases.held()
    rows = activity.told(queries.queue(desk.store, limit), devices, held)
    return {"runs": [told(row) for row in rows]}


@router.get("/workers", response_model=schemas.Workers, dependencies=[Depends(VIEWER)])
def workers(request: Request) -> Json:
    """List the devices, and what each works on."""
    desk = desk_of(request)
    devices = named_devices(desk.store, desk.roster)
    return {
        "workers": [
            {
                "name": d.name,
                "run_name": d.run_name,
                "device": d.device,
                "status": d.status if d.living else "gone",
                "run": d.run,
                "task": d.task,
                "doing": _doing(desk, d),
                "done": d.done,
                "seconds": d.seconds,
                "living": d.living,
                "labels": sorted(d.offer.labels),
                "memory": d.offer.memory,
                "profile": d.offer.profile,
            }
            for d in devices
        ]
    }


def _doing(desk: RunReader, device: Device) -> str | None:
    """Return a device's task in words, by the names of its run; None if it has no task."""
    if not device.task or not device.run:
        return None
    try:
        with desk.state(device.run) as state:
            names = desk.seen(device.run, "names", state, wording.names)
            return wording.task(state.kind, device.task, names) or device.task
    except (EventsError, ForgeError):  # a run that another server's log has
        return device.task


@router.get("/settings", response_model=schemas.Settings, dependencies=[Depends(VIEWER)])
def settings(
    request: Request, kind: str = Query("evomerge", max_length=64, description="See `GET /kinds`.")
) -> Response:
    """Return the settings of a kind of run: JSON Schema, defaults, strategies."""
    return tagged(request, settings_of(kind))


@cache
def settings_of(kind: str) -> Json:
    """Return the settings of a kind: JSON Schema, defaults, strategies. Raises NotFoundError."""
    if kind not in kinds.table():
        raise NotFoundError(f"there is no kind of run {kind!r}: `GET /kinds` lists them.")
    return kinds.of(kind).settings.schema()


@router.get("/kinds", response_model=schemas.Kinds, dependencies=[Depends(VIEWER)])
def listed_kinds() -> Json:
    """List the kinds of run that this server knows."""
    run_kinds = [kinds.of(name) for name in kinds.table()]
    return {
        "kinds": [
            {
                "name": k.name,
                "line": k.line,
                "unit": k.unit,
                # roles of models, and "data" of kinds that take data
                "takes": asked.roles(k.submitted) + ["data"] * ("data" in k.submitted.model_fields),
                "file": k.requests.has_file,
            }
            for k in run_kinds
        ]
    }


async def known_fields(request: HTTPConnection) -> None:
    """Raise Problem 422 for a field that the route does not have: a filter with a typing error."""
    names = {param.alias for param in request.scope["route"].dependant.query_params}
    faults = [
        {"field": name, "message": f"there is no such field; known are {', '.join(sorted(names))}."}
        for name in dict.fromkeys(request.query_params)
        if name not in names
    ]
    if faults:
        detail = "; ".join(f"{e['field']}: {e['message']}" for e in faults)
        raise HttpError(422, UNPROCESSABLE, detail, errors=faults)
