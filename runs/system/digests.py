"""Digests as events hold them: 64 hex digits, and nothing else.

Caches and stores name files by digests. If a digest of a stranger's log were a path (`/home/ada`,
`../x`), the caches and stores would read, or remove, files that do not belong to them.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, WithJsonSchema

from runs.errors import TamperedError

_HEX = r"[0-9a-f]{64}"
_TEXT = WithJsonSchema({"type": "string"})  # nothing else was ever recorded: the schema is the same

#: 64 hex digits.
Digest = Annotated[str, Field(pattern=rf"^{_HEX}$"), _TEXT]
#: 64 hex digits, or empty if nothing was pinned.
Pinned = Annotated[str, Field(pattern=rf"^({_HEX})?$"), _TEXT]


def checked(digest: str) -> str:
    """Return a digest that may name a file. Raises TamperedError."""
    if not re.fullmatch(_HEX, digest):
        raise TamperedError(f"{digest[:80]!r} is no digest: a file cannot be named by it.")
    return digest
