"""Model registry: a projection of the log to sources, bases, specialists and champions.

Sources, given bases and champions of runs enter the registry automatically. Other models are
registered, by events of a separate stream. A model's id is the beginning of the digest of its
weights: the same weights are one model, even if they were found in several places.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from sqlalchemy import BigInteger, Connection, Row, delete, func, insert, literal, or_, select
from sqlmodel import Field, SQLModel

from agent_forge.events import (
    ChainError,
    Envelope,
    Event,
    EventStore,
    PayloadError,
    Registry,
    UnknownEventError,
    chain,
)
from agent_forge.events.projection import catch_up
from agent_forge.events.store import EVENTS
from agent_forge.runs import kinds
from agent_forge.runs.errors import AmbiguousError, ForgeError, NotFoundError
from agent_forge.runs.event_types import Digest, Large, Measurement
from agent_forge.runs.history.repository import empty, fold, history
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries
from agent_forge.runs.lists.projections import Types, entry_of
from agent_forge.runs.panels.head import Entry
from agent_forge.runs.record.events import Completed, Exported, Started, Submitted
from agent_forge.runs.streams import run_of

REGISTRY = Registry()

STREAM = "models"

Kind = Literal["base", "source", "specialist", "champion"]
#: Kinds in lists: a merge is a model of a merging run that was exported and is not its champion.
Listed = Literal["base", "source", "specialist", "champion", "merge"]

#: Digits of a digest that name a model.
DIGITS = 16
#: Runs that are read for one model at most, the newest: each is folded whole.
MOST_RUNS = 50


@REGISTRY.event
class ModelRegistered(Event):
    """A model folder was put into the registry by a user."""

    type = "model_registered"
    schema_version = 2

    name: str
    kind: Kind
    path: str
    #: BLAKE3 of its weights.
    digest: Digest
    bytes: Large
    parameters: Large
    metrics: dict[str, float] = {}
    #: Ids of the models that it was made from.
    lineage: tuple[str, ...] = ()
    #: Of a GGUF file: `file` is its name, `type` how it rounds most weights, `digest` the first 32
    #: digits of the BLAKE3 of its bytes.
    origin: dict[str, str] = {}


@REGISTRY.upcaster("model_registered", 1)
def _of_a_folder(data: Entry) -> Entry:
    """Return the data of `model_registered` with an empty `origin`: only folders were registered."""
    return {**data, "origin": {}}


@REGISTRY.event
class ModelRemoved(Event):
    """A model was taken out of the registry by a user; no file is touched."""

    type = "model_removed"

    id: str
    reason: str | None = None


@REGISTRY.event
class ModelRenamed(Event):
    """A model got a name from a user, in the place of the one that it had."""

    type = "model_renamed"

    id: str
    name: str


@REGISTRY.event
class ModelDescribed(Event):
    """A user's words about a model: a note, tags. None: as before."""

    type = "model_described"

    id: str
    #: Empty: no note.
    note: str | None = None
    #: All tags that it has now.
    tags: tuple[str, ...] | None = None


class ModelRow(SQLModel, table=True):
    """One model of the registry."""

    __tablename__ = "models"  # pyright: ignore[reportAssignmentType]

    id: str = Field(primary_key=True)
    #: Position of the event that added the model: newer models have higher positions.
    first: int = Field(sa_type=BigInteger, index=True)
    name: str
    kind: str
    digest: Digest
    bytes: int | None = Field(sa_type=BigInteger)
    parameters: int = Field(sa_type=BigInteger)
    #: JSON.
    metrics: str
    lineage: str
    origin: str
    #: The run that made it, or that it was first seen in.
    run: str | None
    #: Where the model was, as recorded last: a folder or a Hub id.
    path: str | None
    registered_at: str
    note: str = ""
    #: Separated by spaces.
    tags: str = ""
    removed: bool = False


MODELS = ModelRow.metadata.tables["models"]


class ModelRunRow(SQLModel, table=True):
    """One run that made a model, or was given it."""

    __tablename__ = "model_runs"  # pyright: ignore[reportAssignmentType]

    digest: Digest = Field(primary_key=True)
    run: str = Field(primary_key=True)
    #: Position of the event that first says so.
    first: int = Field(sa_type=BigInteger)


RUNS = ModelRunRow.metadata.tables["model_runs"]


def id_of(digest: str) -> str:
    """Return the id of the model with these weights: the first `DIGITS` digits of their digest."""
    return digest[:DIGITS]


def _refuse_unlinked(connection: Connection, row: Envelope) -> None:
    """Raise ChainError if the row does not follow on the row before it in the registry's stream."""
    before = (EVENTS.c.stream == STREAM) & (EVENTS.c.version == row.version - 1)
    head = connection.execute(select(EVENTS.c.hash).where(before)).scalar()
    head = chain.GENESIS if row.version == 1 else head
    if head is None or not chain.follows(row, row.version - 1, head):
        raise ChainError(STREAM, row.version, "it was changed, or it was not recorded by forge")


class RegisteredModels:
    """The projection of the model registry."""

    name = "models"
    version = 6
    tables = (MODELS, RUNS)

    def apply(self, store: EventStore, connection: Connection, rows: Sequence[Envelope]) -> None:
        """Put rows of the log into the tables; skip rows that bring no model."""
        for row in rows:
            try:
                if row.stream == STREAM:
                    _refuse_unlinked(connection, row)
                    self._take_user_event(connection, row)
                elif kinds.is_run(row.stream) and row.type in _BRINGING:
                    self._add_brought(store, connection, row)
                elif kinds.is_run(row.stream) and row.type == Exported.type:
                    self._note_export(store, connection, row)
            except (UnknownEventError, ForgeError):
                continue  # of a newer version, or a fork whose past is gone: see `forge verify`

    def _add_brought(self, store: EventStore, connection: Connection, row: Envelope) -> None:
        """Add the models that a run's event brings."""
        kind, run = kinds.kind_of(row.stream), run_of(row.stream)
        assert kind
        state = empty(row.stream)
        for earlier in history(store, run, row.version):
            if earlier.type in _READ:
                state.take(state.registry.load(earlier), key=earlier.key)
            if earlier.type == Started.type:
                break
        state.run = run
        try:
            models = kind.models.registered(state.registry.load(row), state)
            inputs = kind.inputs(state).values() if row.type == Started.type else ()
        except ValueError as error:
            raise PayloadError(row.position, row.type, str(error)) from error
        for digest in dict.fromkeys(digest for group in inputs for digest in group):
            _note(connection, row, digest, run)
        self._add(connection, row, models, run)

    def _add(self, connection: Connection, row: Envelope, models: list[Entry], run: str) -> None:
        """Add the models of a run that the registry lacks."""
        for model in models:
            _note(connection, row, model["digest"], run)
            values = {k: v for k, v in model.items() if k not in ("metrics", "lineage")}
            lineage = [id_of(digest) for digest in model["lineage"]]
            _put(connection, row, {"bytes": None, **values}, model["metrics"], lineage, run)

    def _note_export(self, store: EventStore, connection: Connection, row: Envelope) -> None:
        """Note the folder that an export wrote; add the model if the registry lacks it."""
        run = run_of(row.stream)
        state = fold(list(history(store, run, row.version)), showing=True)
        kind, event = kinds.of(state.kind), state.registry.load(row)
        assert isinstance(event, Exported)
        models: list[Entry] = []
        result = kind.models.result(state)
        if state.completed is not None and result is not None and result.digest == event.digest:
            state.submitted = state.submitted.model_copy(update={"output_dir": event.folder})
            models = kind.models.registered(state.completed, state)
        else:
            models = kind.models.registered(event, state)
            condition = MODELS.c.id == id_of(event.digest)
            connection.execute(MODELS.update().where(condition).values(path=event.folder))
        self._add(connection, row, models, run)
        for model in models:
            if model["path"] is not None:
                condition = MODELS.c.id == id_of(model["digest"])
                connection.execute(MODELS.update().where(condition).values(path=model["path"]))

    def _take_user_event(self, connection: Connection, row: Envelope) -> None:
        event = REGISTRY.load(row)
        if isinstance(event, ModelRemoved):
            condition = MODELS.c.id == event.id
            connection.execute(MODELS.update().where(condition).values(removed=True))
        elif isinstance(event, ModelRenamed):
            condition = MODELS.c.id == event.id
            connection.execute(MODELS.update().where(condition).values(name=event.name))
        elif isinstance(event, ModelDescribed):
            condition = MODELS.c.id == event.id
            words = event.model_dump(exclude={"id"}, exclude_none=True)
            if "tags" in words:
                words["tags"] = " ".join(event.tags or ())
            if words:
                connection.execute(MODELS.update().where(condition).values(**words))
        elif isinstance(event, ModelRegistered):
            condition = MODELS.c.id == id_of(event.digest)
            entry = connection.execute(select(MODELS).where(condition)).first()
            if entry is not None and entry.run is not None and not entry.removed:
                where = {"path": event.path, "bytes": event.bytes, "origin": _text(event.origin)}
                # what runs recorded stays
                connection.execute(MODELS.update().where(condition).values(**where))
                return
            values = event.model_dump(exclude={"metrics", "lineage"})
            values["origin"] = _text(event.origin)
            connection.execute(delete(MODELS).where(condition))
            _put(connection, row, values, event.metrics, list(event.lineage), None)


#: Columns that only the projection reads.
_INTERNAL = frozenset({"first", "removed"})
#: Types of the events that may bring models, and of those that are read for it.
_BRINGING = frozenset({Started.type, Completed.type})
_READ = frozenset({Submitted.type, Started.type})


def _note(connection: Connection, row: Envelope, digest: str, run: str) -> None:
    """Insert the row that a run made a model or was given it, unless there is one."""
    condition = (RUNS.c.digest == digest) & (RUNS.c.run == run)
    if connection.execute(select(RUNS.c.run).where(condition)).first() is None:
        values = {"digest": digest, "run": run, "first": row.position}
        connection.execute(insert(RUNS).values(**values))


def _put(
    connection: Connection,
    row: Envelope,
    values: Entry,
    metrics: dict[str, float],
    lineage: list[str],
    run: str | None,
) -> None:
    """Insert a model's row, unless the registry has the model and it was not removed."""
    id_ = id_of(values["digest"])
    entry = connection.execute(select(MODELS.c.removed).where(MODELS.c.id == id_)).first()
    if entry is not None and not entry.removed:
        return
    connection.execute(delete(MODELS).where(MODELS.c.id == id_))
    origin_columns = {"id": id_, "first": row.position, "registered_at": row.recorded_at, "run": run}
    json_columns = {"metrics": json.dumps(metrics, sort_keys=True), "lineage": json.dumps(lineage)}
    words = {"note": "", "tags": ""}
    values = {"origin": _text({}), **values}
    connection.execute(
        insert(MODELS).values(**values, **origin_columns, **json_columns, **words, removed=False)
    )


def _text(origin: dict[str, str]) -> str:
    return json.dumps(origin, sort_keys=True)


def listed(
    store: EventStore,
    kind: str | None = None,
    query: str = "",
    limit: int = 1000,
    tag: str | None = None,
) -> tuple[list[Entry], int]:
    """Return (at most `limit` newest entries, number of all) that match `kind`, `query`, `tag`."""
    catch_up(store, RegisteredModels())
    condition = ~MODELS.c.removed
    if kind is not None:
        condition &= MODELS.c.kind == kind
    if tag is not None:
        condition &= (literal(" ") + MODELS.c.tags + " ").contains(f" {tag} ", autoescape=True)
    if query:
        columns = (MODELS.c.name, MODELS.c.id, MODELS.c.run, MODELS.c.path, MODELS.c.note)
        condition &= or_(
            *(column.contains(query, autoescape=True) for column in columns),
            MODELS.c.run.in_(queries.called_like(store, query)),
        )
    rows = store.database.rows(
        select(MODELS).where(condition).order_by(MODELS.c.first.desc(), MODELS.c.id).limit(limit)
    )
    total = store.database.rows(select(func.count()).select_from(MODELS).where(condition))[0][0]
    return _told(store, rows), int(total)


def find(store: EventStore, id_: str) -> Entry:
    """Return the entry of the model of this name, id, digest or beginning. Raises NotFoundError.

    A beginning is that of an id or digest. Raises AmbiguousError if several models match.
    """
    catch_up(store, RegisteredModels())
    tries = (
        MODELS.c.id == id_,
        MODELS.c.name == id_,
        MODELS.c.digest.startswith(id_, autoescape=True),  # an id is the beginning of a digest
        MODELS.c.name.in_(_recorded(store, id_)),
    )
    for alike in tries if id_ else ():
        rows = store.database.rows(select(MODELS).where(~MODELS.c.removed & alike).limit(2))
        if len(rows) == 1:
            return _told(store, rows)[0]
        if rows:
            raise AmbiguousError(f"model {id_!r} is the name of several: give an id.")
    raise NotFoundError(f"model {id_!r} is not known. List them with `forge models list`.")


def runs_of(store: EventStore, digest: str) -> list[str]:
    """Return the names of the runs that made or were given these weights, the newest first."""
    catch_up(store, RegisteredModels())
    query = select(RUNS.c.run).where(RUNS.c.digest == digest).order_by(RUNS.c.first.desc())
    return [row.run for row in store.database.rows(query)]


def owner(store: EventStore, id_: str) -> tuple[str, int] | None:
    """Return (owner, position of the first event) of an entry; None if there is no such entry.

    The owner is that of the model's run, else the user who registered the model. A run's owner is that
    of the run list: the past of a fork or of an imported run names another owner. A user who was added
    after the position only shares the name of an earlier user.
    """
    catch_up(store, RegisteredModels())
    rows = store.database.rows(select(MODELS).where(~MODELS.c.removed & (MODELS.c.id == id_)))
    if not rows:
        return None
    if rows[0].run is not None:
        run = queries.row(store, rows[0].run)
        return (run["owner"], run["first"]) if run else ("", rows[0].first)
    events = store.read_all(rows[0].first - 1, 1)
    return events[0].actor if events else "", rows[0].first


def _called(name: str, run: str | None, run_name: str | None) -> str:
    """Return a model's name for people: with its run's name in the place of the run's id."""
    if run is None or run_name is None:
        return name
    if name.endswith(f" of {run}"):
        return name.removesuffix(run) + run_name
    return run_name + name.removeprefix(run) if name.startswith(f"{run}-") else name


def _recorded(store: EventStore, text: str) -> list[str]:
    """Return the recorded model names that `text`, a name as `_called` gives it, may stand for."""
    what, of, run_name = text.rpartition(" of ")
    names = [f"{what}{of}{run}"] if of and (run := queries.named(store, run_name)) else []
    cuts = [place for place, letter in enumerate(text) if letter == "-"]
    pairs = ((queries.named(store, text[:cut]), text[cut:]) for cut in cuts)
    return names + [f"{run}{role}" for run, role in pairs if run]


def _told(store: EventStore, rows: Sequence[Row[*Types]]) -> list[Entry]:
    """Return rows of the registry as dictionaries, with `run_name`, the name of the model's run."""
    names = queries.names(store, {row.run for row in rows if row.run})
    return [
        {
            **{name: value for name, value in entry_of(row).items() if name not in _INTERNAL},
            "name": _called(row.name, row.run, names.get(row.run)),
            "run_name": names.get(row.run, row.run),
            "metrics": json.loads(row.metrics),
            "lineage": json.loads(row.lineage),
            "origin": json.loads(row.origin),
            "tags": row.tags.split(),
        }
        for row in rows
    ]


class RunFigures(NamedTuple):
    """Measurements of a model in one run."""

    run: str
    kind: str
    #: True if the run made the model, False if the model was given to it.
    made: bool
    #: Without those that an earlier run has measured with equal results.
    measurements: tuple[Measurement, ...]
    #: Number of the measurements that are left out.
    again: int = 0


#: Returns the measurements of a run by its whole name; it may use a cached answer.
Read = Callable[[str], RunFigures]


class ModelFigures(NamedTuple):
    """Measurements of a model in the runs of a log: the run that made it, then the newest first."""

    runs: tuple[RunFigures, ...]
    #: All runs that made the model or were given it; more than `runs` if there are very many.
    total: int


def of_digest(store: EventStore, digest: str, read: Read) -> ModelFigures:
    """Return ModelFigures: by run, at most 50, what was measured of these weights, each result once."""
    names = runs_of(store, digest)
    runs: list[RunFigures] = []
    for name in names[:MOST_RUNS]:
        with suppress(ForgeError):  # of a newer version, or a fork whose past is gone
            runs.append(read(name))
    earlier, results = set[Measurement](), list[RunFigures]()
    for run in sorted(runs, key=lambda run: not run.made):
        fresh = tuple(figure for figure in run.measurements if figure not in earlier)
        earlier.update(fresh)
        again = len(run.measurements) - len(fresh)
        results.append(run._replace(measurements=fresh, again=again))
    return ModelFigures(tuple(results), len(names))


def of_state(state: State, digest: str) -> RunFigures:
    """Return one run's measurements of the model with these weights, and if the run made it."""
    kind = kinds.of(state.kind)
    was_made = kind.models.recipe_id(state, digest) is not None
    return RunFigures(state.run, state.kind, was_made, tuple(kind.models.measurements(state, digest)))
