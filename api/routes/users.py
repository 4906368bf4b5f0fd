"""Routes about users and tokens."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from agent_forge.api.access.authorization import ADMIN, VIEWER, Access
from agent_forge.api.routes.runs import desk_of
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.worker.commands import accounts
from agent_forge.worker.commands.accounts import User

router = APIRouter(tags=["users"])


@router.get("/me", response_model=schemas.Me)
def me(request: Request, user: User = Depends(VIEWER)) -> Json:
    """Return the token's user, and the folders that this server takes models from."""
    roots = [str(root) for root in request.app.state.options.roots]
    return {"name": user.name, "role": user.role, "version": request.app.version, "roots": roots}


@router.get("/users", response_model=schemas.Users)
def users(request: Request, user: User = Depends(ADMIN)) -> Json:
    """List the users and the names of their tokens, never a token itself."""
    access: Access = request.app.state.access
    return {"users": [_told(access, name) for name in sorted(access.known().roles)]}


def _told(access: Access, name: str) -> Json:
    user_accounts = access.known()
    tokens = [
        {"id": t.id, "note": t.note, "issued_at": t.issued_at, "expires": t.expires}
        for t in user_accounts.tokens_of(name)
    ]
    return {"name": name, "role": user_accounts.roles[name], "tokens": tokens}


@router.post("/users", status_code=201, response_model=schemas.UserRow)
def add(request: Request, new: schemas.NewUser, user: User = Depends(ADMIN)) -> Response:
    """Add a user; `POST` for a token is a request of its own."""
    accounts.add(desk_of(request).store, new.name, new.role, user.name)
    return JSONResponse(_told(request.app.state.access, new.name), 201)


@router.patch("/users/{name}", response_model=schemas.UserRow)
def change(request: Request, name: str, new: schemas.NewRole, user: User = Depends(ADMIN)) -> Json:
    """Change a user's role."""
    accounts.change_role(desk_of(request).store, name, new.role, user.name)
    return _told(request.app.state.access, name)


@router.delete("/users/{name}", status_code=204, response_class=Response)
def remove(request: Request, name: str, user: User = Depends(ADMIN)) -> Response:
    """Remove a user: the tokens become void, the runs stay."""
    accounts.remove(desk_of(request).store, name, user.name)
    return Response(status_code=204)


@router.post("/users/{name}/tokens", status_code=201, response_model=schemas.IssuedToken)
def issue(
    request: Request, name: str, new: schemas.NewToken, user: User = Depends(ADMIN)
) -> dict[str, str]:
    """Make a token; it is shown this once."""
    id_, secret = accounts.issue(desk_of(request).store, name, new.note, user.name, new.days)
    return {"id": id_, "token": secret}


@router.delete("/users/{name}/tokens/{id}", status_code=204, response_class=Response)
def revoke(request: Request, name: str, id: str, user: User = Depends(ADMIN)) -> Response:
    """Void a token."""
    accounts.revoke(desk_of(request).store, name, id, user.name)
    return Response(status_code=204)
