"""Counts of the house: how much there is to know. `make lines` prints them and fails above the limits.

    python -m testing.house_counts [--note]

`testing/house_counts.json` has the limits, which only go down: `--note` writes today's counts there,
and refuses if one of them is higher than before.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Path(__file__).with_suffix(".json")
#: Packages that a user installs.
PRODUCT = (
    *("agent_forge", "api", "cli", "evaluation", "events", "evomerge"),
    *("phases", "pipeline", "runs", "search", "studies", "tools", "weights", "worker"),
)
#: Pronouns, participles and adverbs that name no thing.
POINTERS = frozenset(
    {
        *("asked", "found", "given", "kept", "known", "made", "mine", "one", "others", "ours"),
        *("own", "said", "seen", "some", "theirs", "told", "wanted"),
    }
)
#: Class names with one role in many modules: events, parameters and contexts of every kind, method or
#: codec; answers of the API and of MCP tools, named as what they show; names of the public Python API.
SHARED = frozenset(
    {
        *("Submitted", "Started", "Forked", "Completed", "Params", "Context"),
        *("CheckFinding", "Components", "Event", "Events", "MadeModel", "Rival", "RunRow"),
        *("EvoMerge", "EvoMergeConfig", "Run"),
    }
)


def files(*packages: str) -> list[Path]:
    """Return the Python files of packages, sorted."""
    return sorted(file for name in packages for file in (ROOT / name).rglob("*.py"))


def names(tree: ast.AST) -> list[str]:
    """Return the names of all assigned variables and of all parameters."""
    nodes = list(ast.walk(tree))
    assigned = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return assigned + [n.arg for n in nodes if isinstance(n, ast.arg) and n.arg not in ("self", "cls")]


def counts() -> dict[str, float]:
    """Return name → count of the product's Python."""
    from agent_forge.runs.kinds.capability import Capability
    from agent_forge.runs.kinds.kind import Kind
    from agent_forge.studies.study import Study

    capabilities = [
        c for c in Capability.__subclasses__() if c.__module__.startswith(Kind.__module__[:-4])
    ]
    every = files(*PRODUCT)
    texts = [file.read_text("utf-8") for file in every]
    assigned = [name for text in texts for name in names(ast.parse(text))]
    modules = [_lines(file) for file in every if file.name != "__init__.py"]
    shared = files("phases", "studies")
    return {
        "files of the product": len(every),
        "modules of the product": len(modules),
        "modules in a hundred below 130 lines": round(
            100 * sum(count < 130 for count in modules) / len(modules), 1
        ),
        "lines of the product": sum(text.count("\n") for text in texts),
        "files of phases and studies": len(shared),
        "lines of phases and studies": sum(_lines(file) for file in shared),
        "names of a kind": len(_public(Kind)) + len(capabilities),
        "names of a kind with its capabilities": sum(len(_public(c)) for c in (Kind, *capabilities)),
        "names of a study": len(_written(Study, Kind)),
        "Any": sum(_anys(text) for text in texts),
        "names in a thousand that name no thing": round(
            1000 * sum(name in POINTERS for name in assigned) / len(assigned), 1
        ),
        "class names with several meanings": len(several(texts)),
    }


def several(texts: list[str]) -> list[str]:
    """Return the class names that two or more modules define, without those of `SHARED`, sorted."""
    classes = Counter(
        n.name for text in texts for n in ast.parse(text).body if isinstance(n, ast.ClassDef)
    )
    return sorted(name for name, modules in classes.items() if modules > 1 and name not in SHARED)


def _lines(file: Path) -> int:
    return file.read_text("utf-8").count("\n")


def _public(cls: type) -> list[str]:
    """Return the public methods of a class, inherited ones included."""
    return [n for n, _ in inspect.getmembers(cls, callable) if not n.startswith("_")]


def _written(study: type, kind: type) -> set[str]:
    """Return the names that a study has beside those of every kind, and that some phase writes."""
    from agent_forge.runs import kinds

    phases = [type(kinds.of(name)) for name in kinds.table()]
    written = {name for one in phases if issubclass(one, study) for name in vars(one)}
    names = {name for name in {*vars(study), *study.__annotations__} if not name.startswith("_")}
    return written & names - {*dir(kind), *kind.__annotations__, "completed"}


def _anys(text: str) -> int:
    return sum(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(ast.parse(text)))


def above(found: dict[str, float], limits: dict[str, float]) -> list[str]:
    """Return a sentence for each count that is above its limit."""
    return [
        f"{name}: {found[name]:,} is above {limit:,}."
        for name, limit in limits.items()
        if found[name] > limit
    ]


def main(arguments: list[str]) -> int:
    """Print the counts; return 1 if one is above its limit."""
    found: dict[str, Any] = counts()
    limits = json.loads(LIMITS.read_text("utf-8")) if LIMITS.exists() else {}
    for name, value in found.items():
        limit = limits.get(name)
        print(f"{name:45s} {value:>10,}" + (f"  of {limit:,}" if limit is not None else ""))
    wrong = above(found, limits)
    for line in wrong:
        print(line, file=sys.stderr)
    if "--note" in arguments and not wrong:
        LIMITS.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
