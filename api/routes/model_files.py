"""Routes over the files of a model's folder: their names and sizes, and the files themselves.

Only folders below the server's roots, or of its own home, are read, and of them only the files that
lie in the folder itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse

from api.access.authorization import SUBMITTER, VIEWER
from api.routes.runs import desk_of
from api.schemas import listings as schemas
from runs.errors import NotFoundError
from weights.storage import model_origin

router = APIRouter(tags=["models, queue, workers"])


@router.get(
    "/models/{id:path}/files", response_model=schemas.ModelFiles, dependencies=[Depends(VIEWER)]
)
def listed(request: Request, id: str) -> dict[str, Any]:
    """List the files of a model's folder with their bytes; `folder` is null if none can be read."""
    folder = _folder(request, id)
    files = [] if folder is None else _files(request, folder)
    told = [{"name": file.name, "bytes": file.stat().st_size} for file in files]
    return {"folder": None if folder is None else str(folder), "files": told}


@router.get(
    "/models/{id:path}/files/{file}",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}},
    },
    dependencies=[Depends(SUBMITTER)],
)
def file(request: Request, id: str, file: str) -> FileResponse:
    """Return one file of a model's folder; ranges of bytes can be asked for."""
    folder = _folder(request, id)
    for found in () if folder is None else _files(request, folder):
        if found.name == file:
            return FileResponse(found, filename=file, media_type="application/octet-stream")
    raise NotFoundError(f"model {id[:100]} has no file {file[:100]!r} that this server reads.")


def _folder(request: Request, id_: str) -> Path | None:
    """Return the first folder, or file, of a model that is there and may be read. Raises ForgeError."""
    store = desk_of(request).store
    entry = model_origin.entry(store, id_)
    origin = model_origin.find(store, entry["id"])
    known = [*([entry["path"]] if entry["path"] else []), *(origin.folders if origin else ())]
    places = (Path(place) for place in known)
    return next(
        (p for p in places if p.is_absolute() and _may_read(request, p) and p.exists()), None
    )


def _files(request: Request, folder: Path) -> Iterator[Path]:
    """Yield a folder's files by name; no hidden ones, and no links to where no file may be read."""
    found = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    for place in found:
        if not place.name.startswith(".") and place.is_file() and _may_read(request, place):
            yield place


def _may_read(request: Request, place: Path) -> bool:
    home = desk_of(request).home.folder.resolve()
    return request.app.state.options.inside(place) or home in place.resolve().parents
