"""Unpacking of an archive that a stranger may have made to fill memory or the disk: with bounds."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Iterator
from typing import IO

from events.errors import ArchiveError

#: Bytes that one member's header may have, its long names included.
HEADER = 1 << 20
#: The unpacked content may be `EXPANSION` times as large as the file, and `SLACK` bytes more. Logs
#: shrink to a tenth, weights to a half; a file that shrinks to a thousandth was made to fill the
#: disk.
EXPANSION, SLACK = 100, 64 << 20


class BoundedUnpacking:
    """A file's unpacked content, refused once it is out of proportion to the packed bytes read.

    Long names stand before a member as content of their own, which `tarfile` reads into memory
    whole: within `header` at most `HEADER` bytes can be read.
    """

    def __init__(
        self, raw: IO[bytes], packed: gzip.GzipFile, bad: Callable[[str], ArchiveError]
    ) -> None:
        self._raw, self._packed, self._bad = raw, packed, bad
        self._seen = 0
        #: The number of bytes seen beyond which a header is too long; None outside of headers.
        self._until: int | None = None

    @contextlib.contextmanager
    def header(self) -> Iterator[None]:
        """Bound what is read by `HEADER` bytes."""
        self._until = self._seen + HEADER
        try:
            yield
        finally:
            self._until = None

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes. Raises ArchiveError."""
        data = self._packed.read(size)
        self._seen += len(data)
        if self._until is not None and self._seen > self._until:
            raise self._bad(f"the header of its next file has more than {HEADER:,} bytes")
        if self._seen > SLACK + EXPANSION * self._raw.tell():
            raise self._bad(
                f"it unpacks to more than {EXPANSION} times its size: it was made to fill the disk"
            )
        return data
