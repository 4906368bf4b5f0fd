"""`bfcl:FOLDER/CATEGORY`: a category of the Berkeley Function Calling Leaderboard v4 as problems.

    pip download --no-deps bfcl-eval; unzip bfcl_eval-*.whl -d bfcl
    forge score MODEL --data bfcl:bfcl/simple_python --context 4096

Patil et al. 2025, "The Berkeley Function Calling Leaderboard" (ICML). FOLDER is the unpacked package
or a folder inside it. A row is a problem: the user's question with schemas of functions, which are
written as the leaderboard writes them for models of OpenAI, and a check of the reply's calls by the
leaderboard's rules (`evaluation.verifiers.calls`). In the category irrelevance no function fits, and a
right reply makes no call. All items are of the slice test: nothing can be chosen by them. The
questions together are one more item, a text, because every measurement needs some text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from agent_forge.evaluation.data import file_formats
from agent_forge.evaluation.verifiers.calls import Calls
from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import DataError

PREFIX = "bfcl:"
#: The category without right calls, and all categories whose rows have one question.
SILENT = "irrelevance"
CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple", SILENT)
#: Where FOLDER may have the data, and the name of a category's file.
INSIDE, NAME = ("", "data", "bfcl_eval/data"), "BFCL_v4_{}.json"
MAX_TOKENS = 256
#: A sentence that the leaderboard adds to the description of each function.
HINT = " Note that the provided function is in Python 3 syntax."
#: Type of the leaderboard → type of JSON Schema, if they differ.
SCHEMA_TYPES = {"float": "number", "tuple": "array", "dict": "object", "any": "string"}

Row = Plain


def is_place(place: str | Path) -> bool:
    """Return True if a data argument begins with "bfcl:"."""
    return str(place).startswith(PREFIX)


def folder(place: str) -> Path:
    """Return the folder of a place `bfcl:FOLDER/CATEGORY`; of any other place its path."""
    return Path(place.removeprefix(PREFIX)).parent if is_place(place) else Path(place)


def rows(places: Iterable[str]) -> list[Row]:
    """Return a list of rows of items, as in JSONL data, of all `bfcl:` places. Raises DataError."""
    return [row for place in filter(is_place, places) for row in _category(place)]


def _category(place: str) -> list[Row]:
    name = Path(place.removeprefix(PREFIX)).name
    data = _data_folder(place, name)
    file_formats.check_size(data / NAME.format(name))
    calls: dict[object, list[Row]] = {}
    if name != SILENT:
        file_formats.check_size(data / "possible_answer" / NAME.format(name))
        for where, _, row in file_formats.lines(data / "possible_answer" / NAME.format(name)):
            with _described(where):
                calls[row["id"]] = cast("list[Row]", row["ground_truth"])
    items: list[Row] = []
    for where, _, row in file_formats.lines(data / NAME.format(name)):
        with _described(where):
            items.append(_item(row, name, [] if name == SILENT else calls[row["id"]]))
    text = "\n\n".join(item["prompt"] for item in items)
    return [*items, {"id": f"{name}/questions", "domain": name, "slice": "test", "text": text}]


def _data_folder(place: str, name: str) -> Path:
    """Return the folder that has the files of a category. Raises DataError."""
    root = folder(place)
    there = {c: root / i for i in INSIDE for c in CATEGORIES if (root / i / NAME.format(c)).is_file()}
    if name not in there:
        raise DataError(
            f"{place[:200]}: the folder {root} has no category {name!r} that is read here. It has "
            f"{', '.join(there) or 'none: give bfcl:FOLDER/CATEGORY, with the unpacked bfcl-eval'}."
        )
    return there[name]


@contextmanager
def _described(where: str) -> Iterator[None]:
    """Raise DataError, with file and line, for any error that a malformed row causes."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{where}: no row of the leaderboard ({why}).") from error


def _item(row: Row, name: str, calls: Sequence[Row]) -> Row:
    ((message,),) = row["question"]
    if message["role"] != "user" or not isinstance(message["content"], str):
        raise ValueError("its question is not a text of the user")
    functions = {function["name"]: function for function in row["function"]}
    allowed = [_allowed(functions[key], call[key]) for call in calls for key in call]
    check = Calls.model_validate({"kind": "calls", "allowed": allowed})
    return {
        "id": row["id"],
        "domain": name,
        "slice": "test",
        "prompt": message["content"],
        "check": check,
        "max_tokens": MAX_TOKENS,
        "functions": [_tool(function) for function in row["function"]],
    }


def _allowed(function: Row, arguments: Row) -> Row:
    """Return a member of `Calls.allowed`: the values, and what the schema says of them."""
    types: dict[str, str] = {}
    for name in arguments:
        if (schema := function["parameters"]["properties"].get(name)) is not None:
            nested = schema["type"] in ("array", "tuple")
            types[name] = schema["type"] + (f" of {schema['items']['type']}" if nested else "")
    name, required = _tool(function)["function"]["name"], function["parameters"]["required"]
    return {"name": name, "arguments": arguments, "types": types, "required": required}


def _tool(function: Row) -> Row:
    """Return a function in OpenAI's form, in which a name has no dots."""
    parameters = function["parameters"]
    properties = {name: _schema(inner) for name, inner in parameters["properties"].items()}
    changes = {
        "name": function["name"].replace(".", "_"),
        "description": function["description"] + HINT,
        "parameters": {**parameters, "type": "object", "properties": properties},
    }
    return {"type": "function", "function": {**function, **changes}}


def _schema(schema: Row, has_words: bool = True) -> Row:
    """Return JSON Schema of an argument (`has_words`: it is described), or of a list's members."""
    name = schema.get("type", "any")
    result = {**schema, "type": SCHEMA_TYPES.get(name, name)}
    if has_words and name == "float":
        words = f"{schema.get('description', '')} This is a float type value.".lstrip()
        result |= {"format": "float", "description": words}
    if "properties" in schema:
        result["properties"] = {n: _schema(inner) for n, inner in schema["properties"].items()}
    elif "items" in schema:
        result["items"] = _schema(schema["items"], has_words=False)
    return result
