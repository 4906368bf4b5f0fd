"""Routes over the files of a model: names and sizes, the files, all in one zip, a GGUF file.

Only folders below the server's roots, or of its own home, are read, and of them only the files that
lie in the folder itself. A model without such a folder is written into the home first, by a process
beside the server.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from agent_forge.api.access.authorization import SUBMITTER, VIEWER, bearer
from agent_forge.api.problems import HttpError
from agent_forge.api.schemas import listings as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.api.state import model_folders
from agent_forge.runs.errors import ConflictError, DataError, NotFoundError
from agent_forge.runs.system import bounded_files
from agent_forge.weights.folders import model_card
from agent_forge.weights.storage import model_origin
from agent_forge.worker.commands.accounts import User

router = APIRouter(tags=["models, queue, workers"])

#: What a response of files is, in the OpenAPI document.
BYTES: dict[int | str, Json] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}
#: Weights do not become smaller: nothing is packed on the way.
PLAIN = {"Content-Encoding": "identity"}
#: Type of a GGUF file.
TYPE = Query("F16", pattern="^[A-Za-z0-9_]{1,16}$", description="See `GET /models/{id}/gguf-types`.")
#: Stands for the token where a browser opens an address (`api.access.authorization`).
TICKET = Query(None, max_length=100, description="Of `POST /models/{id}/tickets`.")


@router.get(
    "/models/{id:path}/files", response_model=schemas.ModelFiles, dependencies=[Depends(VIEWER)]
)
def listed(request: Request, id: str) -> Json:
    """List the files of a model's folder with their bytes; `folder` is null if none can be read."""
    state = request.app.state
    entry, folder = model_folders.folder_of(state, id)
    places = model_folders.files(state, folder)
    name, digest = model_folders.plain_name(entry), entry["digest"]
    ggufs = [
        {"type": place.stem.partition("-")[2], "bytes": place.stat().st_size}
        for place in sorted(_ggufs(request).glob(f"{digest}-*.gguf"))
    ]
    return {
        "folder": None if folder is None else str(folder),
        "files": [{"name": place.name, "bytes": place.stat().st_size} for place in places],
        "bytes": model_folders.weight_bytes(places),
        "load": model_card.lines(name, [place.name for place in places], _config(folder)),
        "writing": _job(request, f"model {digest}", folder is not None),
        "gguf": {**_job(request, f"gguf {digest}", bool(ggufs)), "files": ggufs},
    }


def _config(folder: Path | None) -> Json:
    """Return a folder's config.json; {} if it has none that can be read."""
    place = None if folder is None else folder / "config.json"
    try:
        return bounded_files.read_object(place, error=DataError) if place else {}
    except DataError:
        return {}


def _job(request: Request, name: str, done: bool) -> Json:
    """Return {status, error} of the job that writes a model's files; `done`: the files exist."""
    work = request.app.state.work
    status = work.status(name)
    if status in ("none", "done"):  # what it wrote may have been removed since
        status = "done" if done else "none"
    return {"status": status, "error": work.failed(name)}


@router.get(
    "/models/{id:path}/files/{file}",
    response_class=Response,
    responses=BYTES,
    dependencies=[Depends(SUBMITTER)],
)
def file(request: Request, id: str, file: str, ticket: str | None = TICKET) -> FileResponse:
    """Return one file of a model's folder; ranges of bytes can be asked for."""
    _, folder = model_folders.folder_of(request.app.state, id)
    for place in model_folders.files(request.app.state, folder):
        if place.name == file:
            return _sent(place, file)
    raise NotFoundError(f"model {id[:100]} has no file {file[:100]!r} that this server reads.")


def _sent(place: Path, name: str) -> FileResponse:
    return FileResponse(place, filename=name, media_type="application/octet-stream", headers=PLAIN)


@router.get(
    "/models/{id:path}/zip", response_class=Response, responses=BYTES, dependencies=[Depends(SUBMITTER)]
)
def zipped(request: Request, id: str, ticket: str | None = TICKET) -> StreamingResponse:
    """Return all files of a model's folder as one zip, which is made while it is sent."""
    entry, folder = model_folders.folder_of(request.app.state, id)
    places = model_folders.files(request.app.state, folder)
    if not places:
        raise NotFoundError(f"model {id[:100]} has no folder that this server reads.")
    name = model_folders.plain_name(entry)
    disposition = {"Content-Disposition": f'attachment; filename="{name}.zip"'}
    pieces = model_folders.zipped(name, places)
    return StreamingResponse(pieces, media_type="application/zip", headers=PLAIN | disposition)


@router.post("/models/{id:path}/folder", status_code=202, response_model=schemas.ModelFiles)
async def written(request: Request, id: str, user: User = Depends(SUBMITTER)) -> Json:
    """Write the folder of a model into the server's home, built again from its run if need be."""
    state = request.app.state

    def look() -> tuple[str, str]:
        entry, origin = model_folders.origin_of(state, id)
        if origin is None:
            raise NotFoundError(f"model {id[:100]!r} is not known.")
        places = model_folders.readable(state, entry, origin)
        if origin.hub is not None:
            state.options.model(origin.hub)
        return entry["digest"], origin.request([str(place) for place in places])

    digest, order = await asyncio.to_thread(look)
    command = list(model_origin.COMMAND)
    await state.work.begin(f"model {digest}", command, again=True, text=order, by=user.name)
    return await asyncio.to_thread(listed, request, id)


@router.post("/models/{id:path}/gguf", status_code=202, response_model=schemas.ModelFiles)
async def converted(
    request: Request, id: str, type: str = TYPE, user: User = Depends(SUBMITTER)
) -> Json:
    """Write a model as a GGUF file of a type into the server's home, one file at a time."""
    work = request.app.state.work
    entry, folder = await asyncio.to_thread(_readable, request, id)
    place = _ggufs(request) / f"{entry['digest']}-{type}.gguf"
    place.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "agent_forge.worker.exports.gguf_export",
        str(folder),
        str(place),
        type,
    ]
    await work.begin(f"gguf {entry['digest']}", command, again=True, by=user.name)
    return await asyncio.to_thread(listed, request, id)


@router.get("/models/{id:path}/gguf-types", response_model=schemas.GgufTypes)
async def gguf_types(request: Request, id: str, user: User = Depends(SUBMITTER)) -> Json:
    """List the types of GGUF file that a model can be written as; a process beside the server looks."""
    _, folder = await asyncio.to_thread(_readable, request, id)
    return await request.app.state.readers.ask("gguf_types", user.name, path=str(folder))


def _readable(request: Request, id: str) -> tuple[Json, Path]:
    """Return (entry, folder) of a model whose folder has nothing that may not be read.

    Raises ConflictError, NotFoundError.
    """
    state = request.app.state
    entry, folder = model_folders.folder_of(state, id)
    if folder is None:
        raise ConflictError(f"model {id[:100]} has no folder that this server reads: write it first.")
    if folder.is_dir() and not all(model_folders.may_read(state, p) for p in folder.iterdir()):
        raise ConflictError(f"{folder} has a link to where this server may not read.")
    return entry, folder


@router.get(
    "/models/{id:path}/gguf",
    response_class=Response,
    responses=BYTES,
    dependencies=[Depends(SUBMITTER)],
)
def gguf(request: Request, id: str, type: str = TYPE, ticket: str | None = TICKET) -> FileResponse:
    """Return the model's GGUF file of a type, once it is written."""
    entry = model_origin.entry(request.app.state.desk.store, id)
    place = _ggufs(request) / f"{entry['digest']}-{type}.gguf"
    if not place.is_file():
        raise NotFoundError(
            f"model {id[:100]} is not written as GGUF of type {type}: POST to this address first."
        )
    return _sent(place, f"{model_folders.plain_name(entry)}-{type}.gguf")


def _ggufs(request: Request) -> Path:
    """Return the folder of the GGUF files that this server has written."""
    return request.app.state.desk.home.folder / "exports" / "gguf"


@router.post("/models/{id:path}/tickets", status_code=201, response_model=schemas.Ticket)
def ticket(request: Request, id: str, user: User = Depends(SUBMITTER)) -> Json:
    """Issue a ticket: the query `?ticket=` stands for the token in one download of this model."""
    entry = model_origin.entry(request.app.state.desk.store, id)
    token = bearer(request)
    if token is None:
        raise HttpError(401, "Unauthorized", "Send `Authorization: Bearer TOKEN`.")
    path = f"/models/{entry['id']}/"
    return {"ticket": request.app.state.tickets.issue(path, token), "path": path}
