"""Tasks, events and figures of a run in words, for dashboard, terminal and messages. Pure.

`names` maps a recipe id to the name that people read; a kind of run has words for what is its own
(`View.summary_line`, `View.task_words`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agent_forge.events.envelope import Data
from agent_forge.runs import kinds
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.decide import whole_key
from agent_forge.runs.panels.head import measured
from agent_forge.runs.panels.shapes import Better, Metric
from agent_forge.runs.system.durations import size

if TYPE_CHECKING:
    from agent_forge.runs.kinds.kind import AnyKind
    from agent_forge.runs.kinds.state import State

Names = Mapping[str, str]


def names(state: State) -> dict[str, str]:
    """Return recipe id → what people call the recipe."""
    return kinds.of(state.kind).view.names(state)


def task(kind: str, key: str, names: Names | None = None) -> str:
    """Return a task's key in words, with the first piece of a part; "" if there are no words."""
    words = kinds.of(kind).view.task_words(whole_key(key), names or {})
    begin = key.removeprefix(whole_key(key)).rpartition("/")[2]
    return f"{words}, from piece {int(begin) + 1:,}" if words and begin else words


def next_step(kind: str, key: str, names: Names | None = None) -> str:
    """Return words for `key`, a task's key or an event's type: at least its own without underscores."""
    return task(kind, key, names) or key.replace("_", " ")


def summary_line(kind: str, type_: str, data: Data, names: Names | None = None) -> str:
    """Return the telling part of an event on one line."""
    try:
        text = kinds.of(kind).view.summary_line(type_, data, names or {})
        if text is not None:
            return text
        tell = _GISTS.get(type_)
        return _any(data) if tell is None else tell(kind, data, names or {})
    except (KeyError, TypeError, ValueError):  # another schema, which lacks a field
        return _any(data)


def _any(data: Data) -> str:
    """Return the most telling fields of an event whose type or schema is not known here."""
    telling = ("generation", "slot", "name", "slice", "reason", "level", "priority")
    return ", ".join(f"{key} {data[key]}" for key in telling if data.get(key) is not None)


def _forked(_kind: str, data: Data, _names: Names) -> str:
    changed = ", ".join(f"{name} {value}" for name, value in data["changes"].items())
    return f"from run {data['parent']}" + (f" with {changed}" if changed else "")


def _task(kind: str, data: Data, names: Names) -> str:
    """Return what went wrong with a task, without line breaks."""
    what = task(kind, data["task"], names) or str(data["task"])
    attempt = f" (attempt {data['attempt']})" if "attempt" in data else ""
    why = data.get("error") or data.get("how") or data.get("reason") or ""
    return f"{what}{attempt}: {' '.join(str(why).split())}"


def _part(kind: str, data: Data, names: Names) -> str:
    """Return what was done of a long task, in words."""
    what = task(kind, data["task"], names) or str(data["task"])
    return f"{what}: pieces {data['begin'] + 1:,} to {data['end']:,} of {data['of']:,}"


def _described(_kind: str, data: Data, _names: Names) -> str:
    tags = None if data.get("tags") is None else " ".join(data["tags"]) or "none"
    words = {"name": data.get("name"), "tags": tags, "note": data.get("note")}
    return ", ".join(f"{what} {text or 'none'}" for what, text in words.items() if text is not None)


def _divergence(kind: str, data: Data, names: Names) -> str:
    what = task(kind, data["task"], names) or data["task"]
    return f"{what}: {data['found'][:12]} instead of {data['recorded'][:12]}"


_GISTS: dict[str, Callable[[str, Data, Names], str]] = {
    "forked": _forked,
    **dict.fromkeys(("task_failed", "task_died", "task_quarantined"), _task),
    "part_done": _part,
    "memory_peaked": lambda k, d, names: (
        f"{task(k, d['task'], names) or d['task']}: {size(d['bytes'])}"
    ),
    "imported": lambda _, d, __: f"taken in by {d['owner']}; it waits to be resumed",
    "divergence_detected": _divergence,
    **dict.fromkeys(
        ("failed", "paused", "resumed", "cancelled", "retried"), lambda _, d, __: d.get("reason") or ""
    ),
    "priority_changed": lambda _, d, __: (
        f"priority {d['priority']}" + (f": {d['reason']}" if d.get("reason") else "")
    ),
    "described": _described,
    "exported": lambda _, d, __: f"to {d['folder']}",
}


#: Unit of a tracker → how panels spell it.
_UNITS = {"bits/byte": "bit/B", "nats/token": "nat/token", "bytes": "B", "count": ""}


def figure_metric(kind: AnyKind, figure: str, better: Better | None = None) -> Metric:
    """Return the Metric of a figure: name in words, `better`, and unit, empty if the name says it."""
    label, colon, _ = kind.figures_of.get(figure, "").partition(": ")
    name = label if colon else figure.replace("_", " ")
    unit = kind.figure_units.get(figure, "")
    unit = "" if name.replace(" per ", "/") == unit else _UNITS.get(unit, unit)
    return Metric(name=name, unit=unit, better=better)


def figure_text(kind: AnyKind, name: str, figure: Figure) -> str:
    """Return a figure in words with its interval: "quality kept 96.10 % (95.94 % to 96.26 %)"."""
    metric = figure_metric(kind, name)
    return f"{metric.name} {measured(figure.value, metric.unit, figure.low, figure.high)}"
