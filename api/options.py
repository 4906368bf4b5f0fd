"""Options of `forge serve`, from its command line and the environment."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_forge.evaluation.data import domains, training_texts
from agent_forge.runs import home
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system.child_environment import may_ask_hub
from agent_forge.weights.folders import adapter_folders, gguf_names, sources

#: Names of this machine that only this machine has.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: A name or an address (that of version 6 in brackets), and a port.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Options:
    """Settings of the server."""

    #: Folders that models and data may be in.
    roots: tuple[Path, ...] = field(default_factory=lambda: (Path.cwd(),))
    #: True if models may be fetched from the Hub, with the server's token.
    hub: bool = False
    #: Other sites whose pages may use the API from a browser.
    origins: tuple[str, ...] = ()
    #: Requests a second of one user, and how many at once before that counts.
    rate: float = 100.0
    burst: int = 400
    #: The same of attempts with a wrong token from one address.
    wrong_rate: float = 1.0
    wrong_burst: int = 20
    #: Live connections at most, of all and of one user.
    watchers: int = 4000
    user_watchers: int = 100
    #: Largest URL and headers together, and largest body, bytes.
    head: int = 1 << 16
    body: int = 1 << 20
    #: Connections that owe a request, at most: of all, and of one address.
    connections: int = 1024
    connections_per_address: int = 256
    #: Live connections that have not said who they are, at most: of all, and of one address.
    strangers: int = 256
    strangers_per_address: int = 64
    #: Seconds that a client may take: for URL and headers, for a body, between two requests, to take
    #: the next piece of an answer, and to say on a live connection who it is.
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: int = 30
    stall_seconds: float = 60.0
    stranger_seconds: float = 10.0
    #: Names that a request's Host may have; an address that is listened on beyond this machine is any.
    hosts: tuple[str, ...] = LOOPBACK
    any_address: bool = False
    #: Addresses of proxies, whose X-Forwarded-For and X-Forwarded-Proto are believed.
    proxies: tuple[str, ...] = ()
    #: Seconds that a check of a run, and reading a model for the registry, may take.
    check_seconds: float = 300.0
    register_seconds: float = 1800.0
    #: The user is the one who started the process: any file may be named, as at a terminal.
    anywhere: bool = False

    @classmethod
    def of_environment(cls, roots: Sequence[str] = (), host: str = "127.0.0.1") -> Options:
        """Return the options of the environment; `host` is listened on. Raises ConfigError."""
        named = roots or [p for p in os.environ.get("FORGE_MODEL_ROOTS", "").split(os.pathsep) if p]
        folders = tuple(home.expanded(root).resolve() for root in named) or (Path.cwd(),)
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
        names = os.environ.get("FORGE_API_HOSTS", "").split()
        watchers = os.environ.get("FORGE_API_WATCHERS") or "100"
        if not watchers.isdecimal() or not 0 < int(watchers) <= 100_000:
            raise ConfigError(f"FORGE_API_WATCHERS is {watchers!r}: give live connections of a user.")
        return cls(
            folders,
            hub == "1",
            origins,
            rate,
            max(1, int(4 * rate)),
            user_watchers=int(watchers),
            hosts=(*LOOPBACK, host.lower(), *(name.lower() for name in names)),
            any_address=host in ("0.0.0.0", "::"),
            proxies=tuple(os.environ.get("FORGE_PROXY", "").split()),
        )

    @classmethod
    def of_terminal(cls, roots: Sequence[str] = ()) -> Options:
        """Return the options for the user who started the process.

        Folders that are given, here or in FORGE_MODEL_ROOTS, confine that user, too. Raises
        ConfigError.
        """
        if roots or os.environ.get("FORGE_MODEL_ROOTS"):
            return cls.of_environment(roots)
        return cls(hub=may_ask_hub(os.environ), anywhere=True)

    def answers_for(self, host: str) -> bool:
        """Return True if a request's Host names this server; foreign pages send other names.

        A Host is a name and perhaps a port (RFC 9110, 7.2), and nothing else.
        """
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = (match[1] or match[2]).lower()
        if name in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_address

    def inside(self, path: Path) -> bool:
        """Return True if a path, with links followed, is in one of the roots, or may be anywhere."""
        if self.anywhere:
            return True
        real = path.resolve()
        return any(real == root or root in real.parents for root in self.roots)

    def place(self, text: str) -> str:
        """Return the full path of what is below a root, or a mere name as it is; refuse others.

        Raises ConfigError for a path outside, in words that do not say what is there.
        """
        try:
            return self._placed(text)
        except (ValueError, OSError, RuntimeError) as error:
            raise ConfigError(f"{text[:200]!r} is no path: {error}") from error

    def there(self, text: str) -> bool:
        """Return True if a name is that of a path that may be read."""
        try:
            return Path(self.place(text)).is_absolute()
        except ConfigError:
            return False

    def model(self, text: str) -> str:
        """Return a model's path or Hub id, as `model_place`. Raises ConfigError if it is forbidden."""
        placed = self.model_place(text)
        self.check_fetched(placed)
        return placed

    def model_place(self, text: str) -> str:
        """Return a model's full path, or its name if it is no path; of BASE+ADAPTER both parts.

        An adapter alone becomes BASE+ADAPTER, by the base that its settings name. Raises ConfigError.
        """
        parts = [self.place(part) for part in self._parts(text)]
        folder = Path(parts[0])
        if len(parts) == 1 and folder.is_absolute() and adapter_folders.is_adapter(folder):
            base = adapter_folders.base_of(folder)
            parts = [self.place(base), *parts] if base else parts
        return "+".join(parts)

    def check_fetched(self, placed: str) -> None:
        """Raise ConfigError for a placed model that is no path, if this server may fetch no models.

        Installed packages are trusted, so they may be read.
        """
        if any(
            not (Path(part).is_absolute() or self.hub or gguf_names.is_package(part))
            for part in self._parts(placed)
        ):
            raise ConfigError(
                f"{placed[:200]!r} is in none of this server's folders (`GET /me` lists them), and no "
                "run or registered model has that name. It fetches nothing from the Hub: start it with "
                "FORGE_API_HUB=1 if a Hub model is meant."
            )

    def data(self, text: str) -> str:
        """Return the text of data, PATH or DOMAIN=PATH, with the path below a root in full.

        Raises ConfigError for a path outside, for a text that is no path and no name of data, and for
        a data set of the Hub if this server fetches nothing.
        """
        placed = self.place(text)
        domain, rest = training_texts.parts(text)
        named = text == domains.NAME or training_texts.MADE.fullmatch(text)
        if Path(placed).is_absolute() or named or (self.anywhere and not domain):
            return placed
        if not domain:
            raise ConfigError(_outside(text))
        if training_texts.is_hub(rest):
            if not self.hub:
                raise ConfigError(
                    f"{text[:200]!r}: this server fetches nothing from the Hub: set FORGE_API_HUB=1 "
                    "where it starts."
                )
            return text
        place = Path(self.place(rest))
        if not place.is_absolute():
            raise ConfigError(_outside(rest))
        for folder, _, _ in os.walk(place):  # every file below is read
            self._check_links(Path(folder))
        return f"{domain}={place}"

    def _check_links(self, place: Path) -> None:
        """Raise ConfigError for a link in a folder that leaves the roots: it may name any file."""
        if not place.is_dir():
            return
        with os.scandir(place) as files:
            links = [Path(file.path) for file in files if file.is_symlink()]
        for file in links:
            if not self.inside(file):
                raise ConfigError(
                    f"{file.name[:200]!r} in {place.name[:200]!r} is a link out of the folders that "
                    "this server may read. Put the file itself there."
                )

    def _parts(self, text: str) -> tuple[str, ...]:
        """Return (BASE, ADAPTER) of BASE+ADAPTER; (text,) if it exists as a path or has no +."""
        if "+" not in text or self.there(text):
            return (text,)
        return sources.split(text) or (text,)

    def _placed(self, text: str) -> str:
        plain = home.expanded(text)
        tries = [plain] if plain.is_absolute() else [root / plain for root in self.roots]
        for path in tries:
            if self.inside(path) and path.exists():
                self._check_links(path)
                return str(path.resolve())
        if self.anywhere:
            return text  # who opens it says that it is missing
        if text.startswith((".", "/", "~")) or Path(text).exists() or ".." in plain.parts:
            raise ConfigError(_outside(text))
        return text


def _outside(text: str) -> str:
    """Return the message for a text under no root; it does not tell what exists there."""
    return f"{text[:200]!r} is in none of this server's folders. `GET /me` lists them."
