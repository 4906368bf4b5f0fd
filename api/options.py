"""What `forge serve` reads from its options and the environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evomerge.errors import ConfigError

PORT = 8083


@dataclass(frozen=True)
class Options:
    """Settings of the server."""

    #: Folders that models and data may be in.
    roots: tuple[Path, ...] = field(default_factory=lambda: (Path.cwd(),))
    #: Whether models may be fetched from the Hub, with the server's token.
    hub: bool = False
    #: Other sites whose pages may use the API from a browser.
    origins: tuple[str, ...] = ()
    #: Requests a second of one user, and how many at once before that counts.
    rate: float = 100.0
    burst: int = 400
    #: The same of attempts with a wrong token from one address.
    wrong_rate: float = 1.0
    wrong_burst: int = 20
    #: Live connections at most.
    watchers: int = 4000
    #: Largest body, bytes.
    body: int = 1 << 20

    @classmethod
    def of_environment(cls, roots: Sequence[str] = ()) -> Options:
        """FORGE_MODEL_ROOTS, FORGE_API_HUB, FORGE_API_ORIGINS, FORGE_API_RATE. Raises ConfigError."""
        named = roots or [p for p in os.environ.get("FORGE_MODEL_ROOTS", "").split(os.pathsep) if p]
        folders = tuple(Path(root).expanduser().resolve() for root in named) or (Path.cwd(),)
        for folder in folders:
            if not folder.is_dir():
                raise ConfigError(
                    f"{folder} is no folder that models could be in: see FORGE_MODEL_ROOTS."
                )
        origins = tuple(os.environ.get("FORGE_API_ORIGINS", "").split())
        text = os.environ.get("FORGE_API_RATE") or "100"
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 0 < rate <= 1e6:
            raise ConfigError(f"FORGE_API_RATE is {text!r}: give requests a second, above 0.")
        hub = os.environ.get("FORGE_API_HUB", "0")
        if hub not in ("0", "1"):
            raise ConfigError(f"FORGE_API_HUB is {hub!r}: give 1 or 0.")
        return cls(folders, hub == "1", origins, rate, max(1, int(4 * rate)))

    def inside(self, path: Path) -> bool:
        """Whether a path, links followed, is in one of the roots."""
        real = path.resolve()
        return any(real == root or root in real.parents for root in self.roots)

    def place(self, text: str) -> str:
        """A model or data that a request names: a path below a root in full, anything else as it is.

        Raises ConfigError for a path outside, in words that do not say what is there.
        """
        try:
            return self._placed(text)
        except (ValueError, OSError, RuntimeError) as error:
            raise ConfigError(f"{text[:200]!r} is no path: {error}") from error

    def model(self, text: str) -> str:
        """The same for a model; a Hub id or an alias only where this server may fetch models."""
        placed = self.place(text)
        if not Path(placed).is_absolute() and not self.hub:
            raise ConfigError(
                f"{text!r} is in none of this server's folders, and it fetches nothing from the Hub: "
                "set FORGE_API_HUB=1 where it starts."
            )
        return placed

    def _placed(self, text: str) -> str:
        plain = Path(text).expanduser()
        tries = [plain] if plain.is_absolute() else [root / plain for root in self.roots]
        for path in tries:
            if self.inside(path) and path.exists():
                return str(path.resolve())
        if text.startswith((".", "/", "~")) or Path(text).exists() or ".." in plain.parts:
            roots = ", ".join(map(str, self.roots))
            raise ConfigError(
                f"{text!r} is not in the folders that this server may read ({roots})."
            )
        return text
