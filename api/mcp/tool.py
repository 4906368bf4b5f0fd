"""MCP tools: a tool's input, answer, required role and errors, and the schemas of structured answers.

Answers that an API route gives as well are in `api.schemas`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_type_hints

import mcp_types as types
from pydantic import BaseModel, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from starlette.datastructures import State

from agent_forge.api.access.authorization import need
from agent_forge.api.problems import UNPROCESSABLE, HttpError, problem_of
from agent_forge.api.schemas.listings import OneRun
from agent_forge.api.schemas.runs import Answer, Json, Status
from agent_forge.api.state.run_cache import RunReader
from agent_forge.runs.panels.head import Head
from agent_forge.runs.panels.side_by_side import Judgement, SettingBeside
from agent_forge.runs.system import plain_text
from agent_forge.worker.commands.accounts import Role, User

#: Characters of an answer, as JSON, at most.
LARGEST = 200_000


class Untitled(GenerateJsonSchema):
    """JSON Schema without a title for each field: a client's language model reads the whole schema."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Return False: the title would be the field's name again."""
        return False


@dataclass(frozen=True)
class McpCall:
    """One call of a tool: the services of the server, the user who asks, and progress to report."""

    #: As `api.services.opened` fills it.
    state: State
    user: User
    #: Sends (done, of, words) to a client that has asked for progress.
    report: Callable[[float, float, str], Awaitable[None]]

    @property
    def desk(self) -> RunReader:
        """The RunReader: the log, and its runs folded."""
        return self.state.desk


@dataclass(frozen=True)
class McpTool:
    """A tool: a function of a call and its parsed input, which returns the answer.

    A plain function runs in a thread, a coroutine in the event loop.
    """

    do: Callable[[McpCall, Any], Any]
    role: Role = "viewer"
    #: It changes nothing; or what it changes cannot be undone.
    reads: bool = True
    destroys: bool = False
    #: A second call with the same input changes nothing further.
    idempotent: bool = True
    #: It may fetch models from the Hub, where that is allowed.
    outside: bool = False

    @property
    def name(self) -> str:
        """The name: a verb and a noun."""
        return self.do.__name__

    @property
    def line(self) -> str:
        """The first paragraph of the description, in one line."""
        return " ".join((inspect.getdoc(self.do) or "").partition("\n\n")[0].split())

    @cached_property
    def takes(self) -> type[BaseModel]:
        """The pydantic class of the input."""
        return get_type_hints(self.do)["request"]

    @cached_property
    def gives(self) -> type[BaseModel]:
        """The pydantic class of the answer."""
        return get_type_hints(self.do)["return"]

    @cached_property
    def listing(self) -> types.Tool:
        """The tool as clients are told of it."""
        return types.Tool(
            name=self.name,
            title=self.name.replace("_", " ").capitalize(),
            description=f"{inspect.getdoc(self.do)}\n\nNeeds the role {self.role} or higher.",
            input_schema=self.takes.model_json_schema(schema_generator=Untitled),
            output_schema=self.gives.model_json_schema(schema_generator=Untitled, mode="serialization"),
            annotations=types.ToolAnnotations(
                read_only_hint=self.reads,
                destructive_hint=self.destroys,
                idempotent_hint=self.idempotent,
                open_world_hint=self.outside,
            ),
        )


async def answered(
    tool: McpTool, call: McpCall, arguments: Mapping[str, object] | None
) -> types.CallToolResult:
    """Return a tool's answer, or its error in words; the user's role is checked first."""
    try:
        need(call.user, tool.role)
        request = parsed(tool.takes, arguments or {})
        if inspect.iscoroutinefunction(tool.do):
            answer = await tool.do(call, request)
        else:
            answer = await asyncio.to_thread(tool.do, call, request)
        data = plain_text.for_reader(answer.model_dump(mode="json", by_alias=True))
        text = as_json(data)
    except Exception as error:
        refused = types.TextContent(type="text", text=words(problem_of(error)))
        return types.CallToolResult(content=[refused], is_error=True)
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structured_content=data)


def parsed(model: type[BaseModel], arguments: Mapping[str, object]) -> BaseModel:
    """Return a call's arguments as an instance of `model`. Raises Problem 422, which names faults."""
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        faults = [
            (".".join(map(str, e["loc"])), str(e["msg"]).removeprefix("Value error, "))
            for e in error.errors()
        ]
        detail = "; ".join(": ".join(filter(None, pair)) for pair in faults)
        raise HttpError(422, UNPROCESSABLE, detail) from error


def as_json(data: object, largest: int = LARGEST) -> str:
    """Return an answer as JSON text without characters that steer a terminal.

    Raises Problem 422 for an answer that is too large for a client to read.
    """
    text = plain_text.escaped(json.dumps(data, ensure_ascii=False, allow_nan=False), "\\u{:04x}")
    if len(text) > largest:
        detail = (
            f"The answer has {len(text):,} characters, and at most {largest:,} are sent: ask for "
            "less of it, or ask the REST API."
        )
        raise HttpError(422, UNPROCESSABLE, detail)
    return text


def words(problem: HttpError) -> str:
    """Return a problem in one line: "TITLE: DETAIL"."""
    sentence = f"{problem.body['title']}: {problem.body['detail']}"
    return plain_text.visible(plain_text.for_reader(sentence))


class RunRow(Answer):
    """A run of a list; `value` is that of its result, or of the best so far, in `metric`."""

    run: str
    name: str
    kind: str
    status: Status
    owner: str
    priority: int
    labels: list[str]
    submitted_at: str
    updated_at: str
    parent: str | None
    value: float | None
    metric: str
    unit: str
    better: Literal["up", "down"] | None
    measured_on: str


class Runs(Answer):
    """A page of runs, the newest first; `next` is `before` of the page after, or null."""

    runs: list[RunRow]
    total: int
    next: int | None


class PanelLine(Answer):
    """A panel without its data: what it shows, in one sentence."""

    name: str
    kind: str
    title: str
    says: str


class RunSummary(Answer):
    """Head of a run, and the panels that `show_panel` gives the data of."""

    name: str = Field(description="What the run is called.")
    head: Head
    panels: list[PanelLine]


class Panel(Answer):
    """One panel; docs/api.md has the eleven kinds. `total` counts its data if some is left out."""

    panel: Json


class Event(Answer):
    """An event of a run."""

    place: int
    type: str
    actor: str
    recorded_at: str
    gist: str = Field(description="The event in a few words.")
    data: Json | None = Field(description="Null if not asked for, or too large.")
    characters: int = Field(description="Length of the data as JSON.")


class Events(Answer):
    """A part of a run's history; `next` is `after` (or `before`) of the next part, or null."""

    events: list[Event]
    total: int
    next: int | None


class Compared(Answer):
    """Two runs side by side: their heads as `show_run` has them."""

    names: dict[str, str] = Field(description="Run → what it is called.")
    heads: tuple[Json, ...]
    judgements: tuple[Judgement, ...]
    settings: tuple[SettingBeside, ...]


class AncestorList(Answer):
    """Ancestors of a model, its own run first, then the runs that made what that one was given."""

    runs: list[OneRun]
    ancestors: int
    left_out: int = Field(description="Ancestors left out: the farthest.")


class Started(Answer):
    """A run that was recorded; `fresh` is false if the key had started it before."""

    run: str
    name: str
    fresh: bool
    warnings: list[str]
