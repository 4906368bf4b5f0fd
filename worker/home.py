"""Where the log and the cache are: FORGE_HOME, by default ~/.local/share/agent-forge."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evomerge.errors import UnavailableError

if TYPE_CHECKING:
    from events import EventStore


@dataclass(frozen=True)
class Home:
    """A folder with the database `forge.db` and the weights cache `artifacts/`."""

    folder: Path

    @classmethod
    def default(cls) -> Home:
        """The folder that the environment names."""
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        return cls(Path(os.environ.get("FORGE_HOME") or Path(data) / "agent-forge").absolute())

    @property
    def database(self) -> Path:
        """The log's file."""
        return self.folder / "forge.db"

    @property
    def artifacts(self) -> Path:
        """The weights cache. May be deleted at any time."""
        return self.folder / "artifacts"

    def open_store(self) -> EventStore:
        """Open the log, creating folder and file where needed. Raises UnavailableError."""
        from events import StoreUnavailableError
        from events.sqlite import open_store

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return open_store(self.database)
        except OSError as error:
            raise UnavailableError(
                f"the home folder {self.folder} cannot be made: {error.strerror}. "
                "Set FORGE_HOME to a folder that you can write to."
            ) from error
        except StoreUnavailableError as error:
            raise UnavailableError(str(error)) from error
