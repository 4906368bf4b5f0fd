"""Text that is shipped with the program, so that it is the same on every machine.

`library.jsonl.gz` holds CPython 3.11's standard library and language reference, one document a line,
under the PSF licence (`library.LICENSE.txt`); `library.md` says where it comes from and what was cut.
`python -m benchmarks.evaluation.shipped_text` makes it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from importlib.resources import files

from agent_forge.evaluation.data.slices import Document

FILE = "library.jsonl.gz"


def documents(domain: str, limit: int) -> Iterator[Document]:
    """Yield the domain's documents in the order of the file until `limit` characters are reached."""
    used = 0
    for line in content().splitlines():
        row = json.loads(line)
        if row["domain"] != domain:
            continue
        yield Document(row["name"], domain, row["text"])
        used += len(row["text"])
        if used >= limit:
            return


def content() -> bytes:
    """Return the bytes of the shipped file, unpacked: JSON lines with `domain`, `name` and `text`."""
    return gzip.decompress((files("agent_forge.evaluation.data.builtin") / FILE).read_bytes())
