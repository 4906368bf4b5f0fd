"""Domain of structured data: records to write in another format, whole or a selection of them.

An example stands in the prompt, so that models which were never taught to follow instructions know
what is wanted. The reply is parsed and compared field by field.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from agent_forge.evaluation.data.builtin.records import CITIES, FIRST, GOODS, LAST, LEVELS, UNITS
from agent_forge.evaluation.data.domains.common import choose, make

Record = dict[str, object]

#: Kind of record → its fields.
KINDS: dict[str, list[str]] = {
    "person": ["name", "age", "city", "active"],
    "part": ["sku", "stock", "price", "unit"],
    "message": ["service", "level", "status", "retry"],
}

#: An example of every kind for the prompt.
EXAMPLES: dict[str, Record] = {
    "person": {"name": "kim park", "age": 41, "city": "seoul", "active": False},
    "part": {"sku": "valve-300", "stock": 12, "price": 7.25, "unit": "piece"},
    "message": {"service": "mail-service", "level": "info", "status": 202, "retry": False},
}


def _record(r: random.Random, kind: str) -> Record:
    if kind == "person":
        values = [
            f"{r.choice(FIRST)} {r.choice(LAST)}",
            r.randint(18, 79),
            r.choice(CITIES),
            r.random() < 0.5,
        ]
    elif kind == "part":
        sku = f"{r.choice(GOODS)}-{r.randint(100, 999)}"
        values = [sku, r.randint(0, 500), round(r.uniform(0.5, 99), 2), r.choice(UNITS)]
    else:
        status = r.choice([200, 201, 204, 400, 404, 500])
        values = [f"{r.choice(GOODS)}-service", r.choice(LEVELS), status, r.random() < 0.5]
    return dict(zip(KINDS[kind], values, strict=True))


def write(records: list[Record], form: str, alone: bool) -> str:
    """Return the text of records in a format; a record that stands `alone` is not written as a list.

    TOML takes only a record that stands alone.
    """
    if form == "csv":
        cells = [[v if isinstance(v, str) else json.dumps(v) for v in x.values()] for x in records]
        return "\n".join(",".join(row) for row in [[*records[0]], *cells])
    if form == "json":
        return json.dumps(records[0] if alone else records)
    if form == "toml":
        return "\n".join(f"{k} = {json.dumps(v)}" for k, v in records[0].items())
    lines = [[f"{k}: {json.dumps(v)}" for k, v in x.items()] for x in records]
    if alone:
        return "\n".join(lines[0])
    return "\n".join(f"- {first}\n" + "\n".join(f"  {x}" for x in rest) for first, *rest in lines)


def meant(records: list[Record], form: str, alone: bool) -> object:
    """Return the data, one record or a list, that a parser should find in `write` of the same."""
    return records[0] if alone and form != "csv" else records


#: Grade → pairs of formats.
PAIRS = [
    [("json", "yaml"), ("yaml", "json"), ("toml", "yaml")],
    [("csv", "json"), ("json", "toml"), ("json", "csv"), ("csv", "yaml")],
    [("csv", "json"), ("yaml", "json"), ("json", "csv")],
    [("csv", "json"), ("json", "json"), ("yaml", "json")],
]


def _task(r: random.Random, grade: int) -> tuple[str, list[Record], str]:
    """Return (prompt, records of the answer, format of the answer).

    Grade 0: two fields; 1: all four; 2: several records; 3: two fields of those records that fit a
    condition.
    """
    kind = r.choice([*KINDS])
    source, target = r.choice(PAIRS[grade])
    fields = sorted(r.sample(range(4), 2 if grade in (0, 3) else 4))
    names = [KINDS[kind][i] for i in fields]
    records = [_record(r, kind) for _ in range(1 if grade < 2 else r.randint(2, 3))]
    example = [EXAMPLES[kind]]
    if grade < 3:
        instruction = f"Write it as {target.upper()}."
        records = [{n: x[n] for n in names} for x in records]
        example = [{n: x[n] for n in names} for x in example]
        shown, answer = (example, records), (example, records)
    else:
        field = r.choice([n for n in KINDS[kind] if n not in names])
        value = r.choice(records)[field]
        condition = f"where {field} is {json.dumps(value)}"
        instruction = f"Write {' and '.join(names)} {condition}, as {target.upper()}."
        fitting = [x for x in records if x[field] == value]
        rows = [{n: x[n] for n in names} for x in (*example, *fitting)]
        shown = ([{**example[0], field: value}], records)
        answer = (rows[:1], rows[1:])
    alone = grade < 2
    parts = [
        f"{source.upper()}:\n{write(x, source, alone)}\n{instruction}\n{target.upper()}:\n"
        for x in shown
    ]
    return f"{parts[0]}{write(answer[0], target, alone)}\n\n{parts[1]}", answer[1], target


def _problem(r: random.Random, grade: int) -> dict[str, object]:
    prompt, records, form = _task(r, grade)
    return {
        "prompt": prompt,
        "check": {"kind": "data", "format": form, "answer": meant(records, form, grade < 2)},
        "max_tokens": 48 if grade < 2 else 128,
        "stop": ["\n\n"],
    }


def _damaged(r: random.Random, records: list[Record]) -> list[Record]:
    """Return a copy of the records with one value changed."""
    result = [dict(x) for x in records]
    record = r.choice(result)
    name = r.choice([*record])
    old = record[name]
    if isinstance(old, bool):
        record[name] = not old
    elif isinstance(old, int | float):
        record[name] = round(old + r.choice([-1, 1, 10, 100]), 2)
    else:
        record[name] = r.choice(sorted({*CITIES, *GOODS, *LEVELS, *UNITS} - {old}))
    return result


def _question(r: random.Random, grade: int) -> dict[str, object] | None:
    """Return a question (dict): the right text and three wrong ones; None if two of these are equal."""
    prompt, records, form = _task(r, grade)
    wrong = {write(_damaged(r, records), form, grade < 2) for _ in range(3)}
    right = write(records, form, grade < 2)
    return choose(r, prompt, right, sorted(wrong)) if len(wrong) == 3 else None


def items(seed: int) -> Iterator[dict[str, object]]:
    """Yield rows of questions and problems, every grade, about records to write in a format."""
    yield from make("data", "question", seed, _question)
    yield from make("data", "problem", seed, _problem)
