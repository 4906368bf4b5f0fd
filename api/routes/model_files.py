"""Routes over the files of a model: names and sizes, the files, all in one zip, a GGUF file.

Only folders below the server's roots, or of its own home, are read, and of them only the files that
lie in the folder itself. A model without such a folder is written into the home first, by a process
beside the server.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from api.access.authorization import SUBMITTER, VIEWER, bearer
from api.problems import Problem
from api.schemas import listings as schemas
from api.state import model_folders
from runs.errors import ConflictError, DataError, NotFoundError
from runs.system import bounded_files
from weights.folders import model_card
from weights.storage import model_origin
from worker.commands.accounts import User

router = APIRouter(tags=["models, queue, workers"])

#: What a response of files is, in the OpenAPI document.
BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}},
}
#: Weights do not become smaller: nothing is packed on the way.
PLAIN = {"Content-Encoding": "identity"}
#: Stands for the token where a browser opens an address (`api.access.tickets`).
TICKET = Query(None, max_length=100, description="Of `POST /models/{id}/tickets`.")


@router.get(
    "/models/{id:path}/files", response_model=schemas.ModelFiles, dependencies=[Depends(VIEWER)]
)
def listed(request: Request, id: str) -> dict[str, Any]:
    """List the files of a model's folder with their bytes; `folder` is null if none can be read."""
    state = request.app.state
    entry, folder = model_folders.folder_of(state, id)
    places = model_folders.files(state, folder)
    name, digest = model_folders.plain_name(entry), entry["digest"]
    gguf = _gguf(request, digest)
    done = gguf.is_file()
    return {
        "folder": None if folder is None else str(folder),
        "files": [{"name": place.name, "bytes": place.stat().st_size} for place in places],
        "bytes": model_folders.weight_bytes(places),
        "load": model_card.lines(name, [place.name for place in places], _config(folder)),
        "writing": _job(request, f"model {digest}", folder is not None),
        "gguf": {
            **_job(request, f"gguf {digest}", done),
            "bytes": gguf.stat().st_size if done else None,
        },
    }


def _config(folder: Path | None) -> dict[str, Any]:
    """Return a folder's config.json; {} if it has none that can be read."""
    place = None if folder is None else folder / "config.json"
    try:
        return bounded_files.read_object(place, error=DataError) if place else {}
    except DataError:
        return {}


def _job(request: Request, name: str, done: bool) -> dict[str, Any]:
    """Return the state of the process that writes a model's files."""
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
    "/models/{id:path}/zip",
    response_class=Response,
    responses=BYTES,
    dependencies=[Depends(SUBMITTER)],
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
async def written(request: Request, id: str, user: User = Depends(SUBMITTER)) -> dict[str, Any]:
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
    await state.work.begin(f"model {digest}", command, again=True, said=order, by=user.name)
    return await asyncio.to_thread(listed, request, id)


@router.post("/models/{id:path}/gguf", status_code=202, response_model=schemas.ModelFiles)
async def converted(request: Request, id: str, user: User = Depends(SUBMITTER)) -> dict[str, Any]:
    """Write a model as a GGUF file of type F16 into the server's home."""
    state = request.app.state
    entry, folder = await asyncio.to_thread(model_folders.folder_of, state, id)
    if folder is None:
        raise ConflictError(
            f"model {id[:100]} has no folder that this server reads: write it first."
        )
    if folder.is_dir() and not all(model_folders.may_read(state, p) for p in folder.iterdir()):
        raise ConflictError(f"{folder} has a link to where this server may not read.")
    place = _gguf(request, entry["digest"])
    place.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "worker.exports.gguf_export", str(folder), str(place)]
    await state.work.begin(f"gguf {entry['digest']}", command, again=True, by=user.name)
    return await asyncio.to_thread(listed, request, id)


@router.get(
    "/models/{id:path}/gguf",
    response_class=Response,
    responses=BYTES,
    dependencies=[Depends(SUBMITTER)],
)
def gguf(request: Request, id: str, ticket: str | None = TICKET) -> FileResponse:
    """Return the model's GGUF file, once it is written."""
    entry = model_origin.entry(request.app.state.desk.store, id)
    place = _gguf(request, entry["digest"])
    if not place.is_file():
        raise NotFoundError(f"model {id[:100]} is not written as GGUF: POST to this address first.")
    return _sent(place, f"{model_folders.plain_name(entry)}-F16.gguf")


def _gguf(request: Request, digest: str) -> Path:
    return request.app.state.desk.home.folder / "exports" / "gguf" / f"{digest}-F16.gguf"


@router.post("/models/{id:path}/tickets", status_code=201, response_model=schemas.Ticket)
def ticket(request: Request, id: str, user: User = Depends(SUBMITTER)) -> dict[str, Any]:
    """Issue a ticket: the query `?ticket=` stands for the token in one download of this model."""
    entry = model_origin.entry(request.app.state.desk.store, id)
    token = bearer(request)
    if token is None:
        raise Problem(401, "Unauthorized", "Send `Authorization: Bearer TOKEN`.")
    path = f"/models/{entry['id']}/"
    return {"ticket": request.app.state.tickets.issue(path, token), "path": path}
