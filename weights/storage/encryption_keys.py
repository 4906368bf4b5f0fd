"""Keys of the artifact store by id: from a variable or a file, checked and never printed."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runs.errors import ConfigError

VARIABLE = "FORGE_ARTIFACT_KEY"
FILE_VARIABLE = "FORGE_ARTIFACT_KEY_FILE"

#: Pattern of the id of a key.
KEY_ID = r"[A-Za-z0-9._-]{1,32}"

_ID_RULE = "1 to 32 letters, digits, dots, underscores or hyphens"
_MAKE_ONE = "Make a key with: openssl rand -base64 32"


@dataclass(frozen=True)
class Keys:
    """Master keys of 32 bytes by id. The first encrypts, all decrypt. Never printed."""

    by_id: Mapping[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.by_id:
            raise ConfigError(f"no key was given. {_MAKE_ONE}")
        for id_, key in self.by_id.items():
            if not re.fullmatch(KEY_ID, id_):
                raise ConfigError(f"a key's id must be {_ID_RULE}.")
            if len(key) != 32:
                raise ConfigError(f"a key must have 32 bytes, not {len(key)}. {_MAKE_ONE}")

    @property
    def first(self) -> str:
        """The id of the key that encrypts."""
        return next(iter(self.by_id))

    @staticmethod
    def find(keys: Keys | None, id_: str, name: str) -> bytes:
        """Return the key of that id, which artifact `name` needs. Raises ConfigError."""
        lacking = f"artifact {name} is encrypted under key {id_}"
        if keys is None:
            raise ConfigError(f"{lacking} and no key was given. Set {VARIABLE} or {FILE_VARIABLE}.")
        if id_ not in keys.by_id:
            raise ConfigError(
                f"{lacking}, which is not among the keys. "
                f"Add its line to the file that {FILE_VARIABLE} names, below the first."
            )
        return keys.by_id[id_]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Keys | None:
        """Return the keys of FORGE_ARTIFACT_KEY or FORGE_ARTIFACT_KEY_FILE; None if neither is set.

        The first variable holds one key as base64. The second names a file with a key per line,
        `id base64` or base64 alone; empty lines and lines that start with # are skipped. Raises
        ConfigError.
        """
        # An empty variable counts as not set: a compose file passes on a missing variable as "".
        value, file = environment.get(VARIABLE) or None, environment.get(FILE_VARIABLE) or None
        if value is not None and file is not None:
            raise ConfigError(f"{VARIABLE} and {FILE_VARIABLE} are both set. Unset one of them.")
        if value is not None:
            key = _key(value.strip(), VARIABLE)
            return cls({key_id(key): key})
        return cls(_parsed(_text(file))) if file is not None else None


def key_id(key: bytes) -> str:
    """Return the id of a key that was given none: 16 hex digits that do not reveal the key."""
    return hashlib.sha256(b"forge vault key id\0" + key).hexdigest()[:16]


def _key(text: str, where: str) -> bytes:
    """Return the key of 32 bytes that is in base64 text. Raises ConfigError.

    The error's message never holds the text, which may be a key with a typing error.
    """
    if not text:
        raise ConfigError(f"{where} is empty. Unset it to store unencrypted. {_MAKE_ONE}")
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        raise ConfigError(f"{where} is not base64. {_MAKE_ONE}") from None
    if len(key) != 32:
        raise ConfigError(f"{where} holds {len(key)} bytes instead of 32. {_MAKE_ONE}")
    return key


def _text(file: str) -> str:
    """Return the content of the key file. Raises ConfigError.

    The error's message does not name the file: its name may be a key by mistake.
    """
    try:
        with Path(file).open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(
                    f"the file that {FILE_VARIABLE} names has mode {stat.S_IMODE(mode):04o}: others "
                    "may use it. Make it yours alone: chmod 600, and change keys that were read."
                )
            return opened.read(2**20).decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(
            f"the file that {FILE_VARIABLE} names is not ASCII text. Give one `id base64` a line."
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f"the file that {FILE_VARIABLE} names cannot be read: {why}. "
            "Check its path and its owner."
        ) from None


def _parsed(text: str) -> dict[str, bytes]:
    """Return id → key, in the order of the lines. Raises ConfigError."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"line {number} of the file that {FILE_VARIABLE} names"
        if len(words) > 2:
            raise ConfigError(f"{where} has {len(words)} words. Write `id base64`, or base64.")
        key = _key(words[-1], where)
        id_ = words[0] if len(words) == 2 else key_id(key)
        if not re.fullmatch(KEY_ID, id_):
            raise ConfigError(f"{where} has a key id that is not {_ID_RULE}. Give it another.")
        if id_ in keys:
            raise ConfigError(f"{where} has a key id that was there before. Give it another.")
        keys[id_] = key
    if not keys:
        raise ConfigError(f"the file that {FILE_VARIABLE} names holds no key. {_MAKE_ONE}")
    return keys
