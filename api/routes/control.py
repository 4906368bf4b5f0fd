"""Routes that give a run a command of `runs.kinds.controls`, or change its name, note and tags."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Header, Request

from agent_forge.api.access.authorization import SUBMITTER, own
from agent_forge.api.routes.runs import desk_of
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.api.state.run_cache import RunReader
from agent_forge.runs.history import repository
from agent_forge.runs.kinds.controls import CONTROLS, Control
from agent_forge.runs.record.events import Described
from agent_forge.worker.commands import control
from agent_forge.worker.commands.accounts import User

router = APIRouter(tags=["asking"])

KEY = Header(
    None,
    alias="Idempotency-Key",
    min_length=1,
    max_length=200,
    description="The same key means the same request: it is carried out once.",
)


def ask(
    desk: RunReader,
    run: str,
    user: User,
    word: str,
    value: object = None,
    reason: str | None = None,
    key: str | None = None,
) -> schemas.Asked:
    """Record a user's command for a run; return the run's id, its status before and the command.

    Raises ForgeError, and Problem 403 for a run of another user.
    """
    name = owned(desk, run, user)
    before = control.ask(desk.store, desk.home, name, word, value, reason, user.name, key)
    answer = getattr(CONTROLS[word].event, "type", word)
    return schemas.Asked(run=name, before=before.status, asked=answer)


def owned(desk: RunReader, run: str, user: User) -> str:
    """Return a run's id. Raises Problem 403 if the run belongs to another user."""
    name = desk.name(run)
    with desk.state(name) as state:
        owner = state.submitted.owner if state.submitted else ""
        owner = "" if state.head in repository.heads(desk.store) else owner
        first = next(desk.store.iterate(state.stream, upto=1))
    own(user, owner, first.position)
    return name


def _add_route(command: Control) -> None:
    """Add the route of a command, such as POST /runs/{run}/pause, to the router."""

    def answer(
        request: Request, run: str, body: object, key: str | None = KEY, user: User = Depends(SUBMITTER)
    ) -> schemas.Asked:
        arguments = (getattr(body, command.value, None), getattr(body, "reason", None), key)
        return ask(desk_of(request), run, user, command.word, *arguments)

    answer.__name__ = command.word
    answer.__doc__ = f"{command.line}\n\n{command.more}"
    answer.__annotations__["body"] = schemas.BODIES[command.word]
    router.post(f"/runs/{{run}}/{command.word}")(answer)


for control_ in CONTROLS.values():
    _add_route(control_)


@router.patch("/runs/{run}", response_model=schemas.Asked)
def describe(
    request: Request,
    run: str,
    words: schemas.Words,
    key: str | None = KEY,
    user: User = Depends(SUBMITTER),
) -> Json:
    """Change a run's name, note or tags. Its id stays."""
    desk = desk_of(request)
    name = owned(desk, run, user)
    event = Described(**words.model_dump())
    before = control.control(desk.store, name, event, user.name, key)
    return {"run": name, "before": before.status, "asked": event.type}
