"""Errors of the log, each saying what happened, why, and what to do."""

from __future__ import annotations


class EventsError(Exception):
    """Base of the log's errors. `exit_code` is the exit code of `forge`; see `runs/errors.py`."""

    exit_code = 1


class ConcurrencyError(EventsError):
    """An append to a stream that is at another version than expected: fold and decide again."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            f"stream {stream} is at version {actual}, not {expected}: "
            "another process has appended. Read the stream and decide again."
        )
        self.stream, self.expected, self.actual = stream, expected, actual


class IdempotencyError(EventsError):
    """Taken keys of one append: some of its events are recorded, or two events share a key."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__(
            f"idempotency keys {', '.join(keys)} are taken, by another append or twice in this one. "
            "Events appended together must always be appended together: use keys of their own."
        )
        self.keys = keys


#: How versions of the program begin that wrote logs before anything was released.
UNRELEASED = "agent-forge 0.1."


class UnknownEventError(EventsError):
    """A row whose type or schema this version of the program does not know."""

    def __init__(self, type_: str, schema: int, registry: str, written_by: str = "") -> None:
        """Make the message; `written_by`: the row's code version, older or newer than this one."""
        why = "It was written by a newer version: upgrade before deciding anything from this log."
        if written_by.startswith(UNRELEASED):
            why = (
                "It was written before 0.2.0, the first release, with which schemas begin again: such "
                "logs cannot be read. Start with a new FORGE_HOME."
            )
        super().__init__(f"event {type_}@{schema} is not known here ({registry}). {why}")
        self.type, self.schema = type_, schema


class PayloadError(EventsError):
    """A row whose data does not fit its type."""

    def __init__(self, position: int, type_: str, why: str) -> None:
        super().__init__(
            f"event {type_} at position {position} cannot be read: {why}. "
            "The row was changed or damaged; restore the database from a backup."
        )
        self.position, self.type = position, type_


class ChainError(EventsError):
    """A stream whose events do not agree with its hashes."""

    def __init__(self, stream: str, version: int, why: str) -> None:
        super().__init__(
            f"stream {stream}, event {version}: {why}. Nothing was changed; `forge verify` says "
            "what differs."
        )
        self.stream, self.version = stream, version


class ArchiveError(EventsError):
    """An archive that is truncated, altered or of another format."""

    def __init__(self, path: str, where: str, why: str) -> None:
        super().__init__(
            f"archive {path} is refused, {where}: {why}. Nothing was imported; get another copy."
        )
        self.path, self.where = path, where


class SchemaError(EventsError):
    """Tables of a database that are of another version than this program's."""

    def __init__(self, where: str, revision: str | None, expected: str, what_to_do: str) -> None:
        super().__init__(
            f"the log at {where} has tables of revision {revision or 'none'}, this program works with "
            f"{expected}: {what_to_do}."
        )
        self.where, self.found, self.wanted = where, revision, expected


class UnstorableError(EventsError):
    """An event with text that not every database can store."""

    def __init__(self, type_: str, field: str) -> None:
        super().__init__(
            f"event {type_} cannot be recorded: its {field} holds a lone surrogate or a zero byte, "
            "which is no text. A file name in another encoding is the usual cause: rename the file."
        )
        self.type, self.field = type_, field


class StoreUnavailableError(EventsError):
    """A database that cannot be opened or written."""

    exit_code = 3

    #: What to do about a log in a file.
    FILE = (
        "Check that the folder exists, is writable and has free space. A damaged file must come back "
        "from a backup."
    )
    #: What to do about a log on a server.
    SERVER = "Check that the server runs, can be reached from here, and has free space."

    def __init__(self, where: str, why: str, advice: str = FILE) -> None:
        super().__init__(f"the log at {where} is not available: {why}. {advice}")
        self.where = where


class ProjectionError(EventsError):
    """A log that has lost events from which a projection was made."""

    def __init__(self, name: str, position: int, last: int) -> None:
        super().__init__(
            f"the tables {name} were made from the log up to position {position}, and the log no "
            f"longer has that event (its last is {last}): events were removed or changed. `forge "
            "verify RUN` says which; restore the database, or accept the loss with `forge db rebuild`."
        )
        self.name, self.position, self.last = name, position, last
