"""The home: places of the log, the weights cache and the artifact store, from the environment.

FORGE_HOME, by default ~/.local/share/agent-forge, has the weights cache, and the log in a SQLite file
unless FORGE_DATABASE_URL names another database. FORGE_ARTIFACT_STORE names a store of weights and
models that machines without a common disk share. A container's user or a service may have no home
folder of its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_forge.runs.errors import ConfigError, ForgeError, UnavailableError
from agent_forge.runs.streams import check_name

if TYPE_CHECKING:
    from agent_forge.events import EventStore
    from agent_forge.events.database import Database


def threads() -> int | None:
    """Return FORGE_THREADS; if not set, the share of cores of one of several processes, else None.

    Raises ConfigError.
    """
    count, several = _number("FORGE_THREADS", "threads"), processes()
    if count is None and several > 1:
        return max(1, len(os.sched_getaffinity(0)) // several)
    return count


def processes() -> int:
    """Return FORGE_PROCESSES, the number of processes that do a run; else 1. Raises ConfigError."""
    return _number("FORGE_PROCESSES", "processes") or 1


def _number(name: str, what: str, most: int = 4096) -> int | None:
    """Return environment variable `name`, a number 1 to `most`; None if unset. Raises ConfigError."""
    text = os.environ.get(name)
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ConfigError(f"{name} is {text!r}: give a number of {what}, 1 to {most}.")
    return int(text)


def segment_steps(step_seconds: float) -> int:
    """Return the number of steps of a training's segment, if a step takes `step_seconds`; at least 1.

    FORGE_SEGMENT_STEPS is the number. Without it, as many steps as last FORGE_SEGMENT_SECONDS, by
    default 60. Raises ConfigError.
    """
    seconds = _segment_seconds()
    steps = _number("FORGE_SEGMENT_STEPS", "steps", most=10**9)
    return steps or max(1, round(min(seconds / max(step_seconds, 1e-9), 10**9)))


def _segment_seconds() -> float:
    text = os.environ.get("FORGE_SEGMENT_SECONDS") or "60"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"FORGE_SEGMENT_SECONDS is {text!r}: give a number of seconds, more than 0.")
    return seconds


@dataclass(frozen=True)
class Home:
    """A folder with the weights cache `artifacts/` and, without a `url`, the database `forge.db`."""

    folder: Path
    #: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME.
    url: str | None = None
    #: A shared store of artifacts, an fsspec URL.
    store: str | None = None

    @classmethod
    def default(cls) -> Home:
        """Return the home that the environment names, else the default one. Raises UnavailableError."""
        folder = Path(os.environ.get("FORGE_HOME") or _usual()).absolute()
        store = os.environ.get("FORGE_ARTIFACT_STORE") or None
        return cls(folder, os.environ.get("FORGE_DATABASE_URL") or None, store)

    @classmethod
    def at(cls, place: Home | str | Path | None) -> Home:
        """Return the home in the folder `place`; the environment's home for None; a Home as it is."""
        if isinstance(place, Home):
            return place
        return cls(Path(place).absolute()) if place else cls.default()

    @property
    def database(self) -> Path:
        """The log's SQLite file."""
        return self.folder / "forge.db"

    @property
    def artifacts(self) -> Path:
        """The weights cache. May be deleted at any time."""
        return self.folder / "artifacts"

    def exports(self, run: str, model: str = "") -> Path:
        """Return the folder that a run's result, or its model `model`, is exported to.

        No run's name has an @. Raises ConfigError for a name that a run cannot have.
        """
        folder = self.folder / "exports"
        if not model:
            return folder / check_name(run)
        return folder / f"{check_name(run)}@{check_name(model.replace(':', '-'))}"

    def make(self) -> None:
        """Create the folder, for its owner alone, if it is missing. Raises OSError.

        In a folder open to other users they could read everything, and stop appends by a lock.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open_store(self) -> EventStore:
        """Return the store of the log; create folder and file if missing. Raises UnavailableError."""
        from agent_forge.events import StoreUnavailableError

        try:
            self.make()
            return self._open()
        except OSError as error:
            raise UnavailableError(
                f"the home folder {self.folder} cannot be made: {error.strerror}. "
                "Set FORGE_HOME to a folder that you can write to."
            ) from error
        except StoreUnavailableError as error:
            raise UnavailableError(str(error)) from error

    def database_alone(self) -> Database:
        """Return the database without checking its tables, to upgrade or check them."""
        from agent_forge.events.databases import postgres, sqlite

        kind, place = self._parsed()
        self.make()
        return postgres.Postgres(place) if kind == "postgresql" else sqlite.Sqlite(Path(place))

    def _open(self) -> EventStore:
        from agent_forge.events.databases import postgres, sqlite

        kind, place = self._parsed()
        if kind == "postgresql":
            return postgres.open_store(place)
        return sqlite.open_store(Path(place))

    def _parsed(self) -> tuple[str, str]:
        """Return ("postgresql", URL) or ("sqlite", file). Raises ConfigError for another address."""
        scheme, _, rest = (self.url or f"sqlite:///{self.database}").partition("://")
        kind = scheme.partition("+")[0]
        if kind in ("postgresql", "postgres") and _is_address(f"postgresql://{rest}"):
            return "postgresql", f"postgresql://{rest}"
        if kind == "sqlite" and rest.startswith("/") and len(rest) > 1:
            return "sqlite", rest[1:]
        raise ConfigError(
            "FORGE_DATABASE_URL is neither sqlite:///FILE nor postgresql://USER@HOST:PORT/NAME: "
            f"it begins with {scheme[:20]!r}."
        )


def _usual() -> Path:
    """Return the home's default folder, in XDG_DATA_HOME or ~/.local/share. Raises UnavailableError."""
    data = os.environ.get("XDG_DATA_HOME")
    folder = Path(data) if data else home("FORGE_HOME") / ".local" / "share"
    return folder / "agent-forge"


def _is_address(url: str) -> bool:
    """Return True if the URL's host and port can be read."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(url)
    except (ArgumentError, ValueError):
        return False
    return True


def home(variable: str) -> Path:
    """Return the user's home folder; `variable` names what to set if there is none.

    Raises UnavailableError if HOME is not set and the user has no entry in the system's list.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise UnavailableError(
            "this user has no home folder: HOME is not set, and the system's list of users does not "
            f"have the user. Set {variable} to a folder that you can write to."
        ) from error


def expanded(text: str | Path, error: type[ForgeError] = ConfigError) -> Path:
    """Return a path with a leading ~ replaced by the home folder. Raise `error` if there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError as problem:
        raise error(
            f"{str(text)[:200]!r} begins with ~, and that user has no home folder here. Write the "
            "whole path."
        ) from problem


def check_hub_cache() -> None:
    """Raise UnavailableError if the Hub's cache belongs into a home folder and the user has none.

    The Hub's library would then make a folder with the name ~ where the program was started.
    """
    from huggingface_hub import constants

    if str(constants.HF_HUB_CACHE).startswith("~"):
        home("HF_HOME")
