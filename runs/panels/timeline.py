"""The timeline of a run's children and of their tasks, by their recorded times. Pure.

A child lasts from its first event to its end. A task ends when its event was recorded, and began as
many seconds before as the event says that the task took; of an event that says no seconds only the end
is known. Devices are known by the actor of an event: a worker, which has one device, or the user whose
command carries the run on itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from runs.panels.stages import Bar, Doing, Lane, Timeline
from runs.record.budget import elapsed
from runs.record.journal import Child, Line

#: Groups of lanes.
RUNS, DEVICES = "runs", "devices"
#: What begins the actor of a worker's events.
WORKER = "worker/"


def timeline(children: Sequence[Child], names: Mapping[str, str]) -> Timeline | None:
    """Return the timeline of a run's children; `names`: run → what it is called. None without any."""
    if not children:
        return None
    began = _start(children)
    until = max(_since(began, child.lines[-1].recorded_at) for child in children)
    lanes = [*_runs(began, children, names), *_devices(began, children, names)]
    failed = sum(line.outcome == "failed" for child in children for line in child.lines)
    tasks = sum(line.outcome == "done" for child in children for line in child.lines)
    summary = f"{_count(len(children), 'run')}, {_count(tasks, 'task')} done"
    return Timeline(
        name="timeline",
        title="Timeline",
        says=summary + (f", {_count(failed, 'attempt')} failed." if failed else "."),
        began=datetime.fromisoformat(began),
        until=until,
        lanes=tuple(lanes),
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _start(children: Iterable[Child]) -> str:
    """Return the earliest time of all bars."""
    return min((child.began for child in children), key=datetime.fromisoformat)


def _since(began: str, time: str) -> float:
    """Return seconds between two times; 0 if a clock was set back."""
    return max(0.0, elapsed(began, time).total_seconds())


def _runs(began: str, children: Sequence[Child], names: Mapping[str, str]) -> Iterator[Lane]:
    """Yield a lane for each child, in the order in which they began."""
    for child in sorted(
        children, key=lambda run_child: (run_child.lines[0].position, run_child.run)
    ):
        start = _since(began, child.began)
        end = _since(began, child.ended) if child.ended else None
        name = names.get(child.run, child.run)
        run = Bar(
            name=name, start=start, end=end and max(start, end), state=_state(child), run=child.run
        )
        troubles = (
            _bar(began, line, name, child.run) for line in child.lines if line.outcome == "failed"
        )
        yield Lane(name=name, group=RUNS, bars=(run, *troubles))


def _state(child: Child) -> Doing:
    words: dict[str, Doing] = {"completed": "done", "failed": "failed", "cancelled": "cancelled"}
    return words.get(child.state.status, "running")


def _devices(began: str, children: Sequence[Child], names: Mapping[str, str]) -> Iterator[Lane]:
    """Yield a lane for each device or process that did tasks, with all of its tasks."""
    bars_by_actor: dict[str, list[Bar]] = {}
    for child in children:
        for line in child.lines:
            if line.outcome:
                name = names.get(child.run, child.run)
                bars_by_actor.setdefault(line.actor, []).append(_bar(began, line, name, child.run))
    for actor in sorted(bars_by_actor):
        bars = sorted(bars_by_actor[actor], key=lambda bar: (bar.end or 0.0, bar.name))
        yield Lane(name=_called(actor), group=DEVICES, bars=tuple(bars))


def _called(actor: str) -> str:
    worker = actor.removeprefix(WORKER)
    return worker if worker != actor else f"command started by {actor}"


def _bar(began: str, line: Line, of: str, run: str) -> Bar:
    end = _since(began, line.recorded_at)
    start = None if line.seconds is None else max(0.0, end - line.seconds)
    state = "failed" if line.outcome == "failed" else "done"
    return Bar(name=f"{of}: {line.task}", start=start, end=end, state=state, run=run)
