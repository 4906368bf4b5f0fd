"""Generated structured data: JSON, CSV, YAML and TOML, one file a document.

Each file holds records of one kind in one format. As in `arithmetic.py`, a file depends only on
(seed, name).
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator

from agent_forge.evaluation.data.slices import Document

FIRST = ["ada", "ben", "cleo", "dan", "eva", "finn", "gus", "hana", "ivo", "june", "kai", "lena"]
LAST = ["adler", "brook", "cole", "diaz", "evans", "frost", "grant", "hale", "ito", "jung"]
CITIES = ["berlin", "cairo", "delhi", "lima", "madrid", "nairobi", "oslo", "paris", "quito", "rome"]
GOODS = ["bolt", "cable", "drill", "engine", "filter", "gear", "hammer", "lamp", "motor", "pump"]
LEVELS = ["debug", "info", "warning", "error"]
UNITS = ["kg", "m", "piece", "litre"]

Record = dict[str, object]


def _person(r: random.Random, number: int) -> Record:
    first, last = r.choice(FIRST), r.choice(LAST)
    return {
        "id": number,
        "name": f"{first} {last}",
        "email": f"{first}.{last}@example.com",
        "city": r.choice(CITIES),
        "age": r.randint(18, 79),
        "active": r.random() < 0.7,
    }


def _part(r: random.Random, number: int) -> Record:
    return {
        "sku": f"{r.choice(GOODS)}-{r.randint(100, 999)}",
        "stock": r.randint(0, 500),
        "unit": r.choice(UNITS),
        "price": round(r.uniform(0.5, 99), 2),
        "warehouse": r.choice(CITIES),
    }


def _log_line(r: random.Random, number: int) -> Record:
    return {
        "time": f"2025-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}T{r.randint(0, 23):02d}:00:00Z",
        "level": r.choice(LEVELS),
        "service": f"{r.choice(GOODS)}-service",
        "status": r.choice([200, 201, 204, 400, 404, 500]),
        "retry": r.random() < 0.2,
    }


KINDS: dict[str, Callable[[random.Random, int], Record]] = {
    "people": _person,
    "parts": _part,
    "log": _log_line,
}


def _as_csv(kind: str, records: list[Record]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _scalar(value: object) -> str:
    """Return a scalar as JSON text, which YAML and TOML read alike."""
    return json.dumps(value)


def _as_yaml(kind: str, records: list[Record]) -> str:
    lines = [f"{kind}:"]
    for record in records:
        for i, (key, value) in enumerate(record.items()):
            lines.append(f"  {'- ' if i == 0 else '  '}{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _as_toml(kind: str, records: list[Record]) -> str:
    blocks = []
    for record in records:
        body = "\n".join(f"{key} = {_scalar(value)}" for key, value in record.items())
        blocks.append(f"[[{kind}]]\n{body}\n")
    return "\n".join(blocks)


FORMATS: dict[str, Callable[[str, list[Record]], str]] = {
    "json": lambda kind, records: json.dumps({kind: records}, indent=2) + "\n",
    "csv": _as_csv,
    "yaml": _as_yaml,
    "toml": _as_toml,
}


def documents(limit: int, seed: int) -> Iterator[Document]:
    """Yield files of 4 to 10 records, formats and kinds in turn, until `limit` characters."""
    used, number = 0, 0
    while used < limit:
        suffix = list(FORMATS)[number % len(FORMATS)]
        kind = list(KINDS)[number // len(FORMATS) % len(KINDS)]
        name = f"{kind}-{number:05d}.{suffix}"
        r = random.Random(f"structured/{seed}/{name}")
        first = r.randint(1, 900)
        records = [KINDS[kind](r, first + i) for i in range(r.randint(4, 10))]
        text = FORMATS[suffix](kind, records)
        yield Document(name, "data", text)
        used, number = used + len(text), number + 1
