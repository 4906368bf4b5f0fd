"""Text that is shipped with the program, so that it is the same on every machine.

    code     Python source: CPython 3.11's standard library
    prose    English: the Python language reference

`library.jsonl.gz` holds them, one document a line, under the PSF licence (`library.LICENSE.txt`);
`library.md` says where it comes from and what was cut. `python -m benchmarks.evaluation.shipped_text`
makes it. The base of `phases/cognate` learns from the prose. Models are measured on it if a specialist
in prose is asked for.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from importlib.resources import files

from agent_forge.evaluation.data.slices import Document

FILE = "library.jsonl.gz"


def documents(domain: str, limit: int) -> Iterator[Document]:
    """Yield the domain's documents in the order of the file until `limit` characters are reached.

    Source files are in the order of their paths, topics of prose in that of their names.
    """
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
