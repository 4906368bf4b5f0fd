"""Views of a merging run for lists, the API, the terminal, trackers and tables. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent_forge.events import Envelope, Event
from agent_forge.events.envelope import Data, Plain
from agent_forge.evomerge.reports import page, panels, report, rows, verdict
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import outlook, wording
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.view import OTHER_DATA, Outlook, Scores, UnderWay, View
from agent_forge.runs.panels.head import Head
from agent_forge.runs.panels.panels import Panel

if TYPE_CHECKING:
    from agent_forge.runs.home import Home


class RunView(View[RunState]):
    """The part of a merging run that is shown."""

    @override
    def names(self, state: RunState) -> dict[str, str]:
        return wording.names(state)

    @override
    def summary_line(
        self, type_: str, data: Mapping[str, object], names: Mapping[str, str]
    ) -> str | None:
        return wording.summary_line(type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        return wording.task(key, names)

    @override
    def row(self, entry: dict[str, object], event: Event) -> None:
        rows.note(entry, event)

    @override
    def summary(self, state: RunState, rows: Sequence[Envelope]) -> list[str]:
        if not state.completed:
            return []
        count = len(state.candidates)
        searched = f"{len(state.generations)} generations had {count} candidates."
        return [report.ending(state)["verdict"]["sentence"], searched]

    @override
    def progress(self, state: RunState) -> tuple[int, int | None]:
        goal = state.submitted.config.generations_wanted if state.submitted else None
        return len(state.generations), None if goal is None else goal + 1

    @override
    def fields(self, state: RunState) -> Plain:
        return page.run(state)

    @override
    def head(self, state: RunState) -> Head:
        return default_panels.head(self.kind, state, panels.result(state), panels.facts(state))

    @override
    def unchanged(self, state: RunState) -> str | None:
        model = verdict.given(state)
        return model.name if model is not None and model.same_weights else None

    @override
    def panels(self, state: RunState, curve: Scores = ()) -> Sequence[Panel]:
        return panels.panels(state) or [default_panels.tasks(self.kind, state)]

    @override
    def part(self, state: RunState, name: str, **query: object) -> Plain:
        return page.part(state, name, query)

    @override
    def report(self, state: RunState, rows: Sequence[Envelope]) -> Plain:
        return report.report(state, rows)

    @override
    def markdown(self, state: RunState, rows: Sequence[Envelope], curve: Scores = ()) -> str:
        return report.markdown(report.report(state, rows), picture=False)

    @override
    def picture(self, report: dict[str, object]) -> bytes | None:
        from agent_forge.evomerge.reports.pictures import plot

        return plot.draw(report, "svg")

    @override
    def message(self, state: RunState, unit: int | None = None) -> dict[str, object]:
        return page.progress(state, unit)

    @override
    def unit_of(self, row: Envelope) -> int | None:
        if row.type != events.GenerationCompleted.type:
            return None
        return getattr(events.REGISTRY.load(row), "generation", None)

    @override
    def ending(self, state: RunState) -> Plain:
        done = state.completed
        return {
            "champion": state.champion,
            "score": done.test.scalar if done else None,
            "results": report.metrics(state) if done else {},
        }

    @override
    def snapshot(self, state: RunState) -> dict[str, object]:
        return page.view(state)

    @override
    def difference(self, a: RunState, b: RunState) -> dict[str, object]:
        return page.difference(a, b)

    @override
    def yardstick(self, state: RunState) -> dict[str, object]:
        if state.started is None or state.submitted is None:
            return {}
        config, sources = state.submitted.config, state.started.sources
        return {
            OTHER_DATA: state.started.data_digest,
            "they have other sources, which scores are relative to": [s.digest for s in sources],
            "their fitness is put together in another way": (config.fitness_weights, config.normalise),
            "their windows have other lengths": state.started.context,
        }

    @override
    def layers(
        self, home: Home, state: RunState, recipe_id: str
    ) -> tuple[str, Plain | None, list[str]]:
        from agent_forge.evomerge.tasks import attribution

        command = [sys.executable, "-m", attribution.__name__, state.run, recipe_id]
        kept = attribution.kept(home, state, recipe_id)
        return attribution.key(state, recipe_id), kept, command

    @override
    def tables(self) -> Data:
        from agent_forge.evomerge.reports.outputs import tables

        return tables.OWN

    @override
    def tokens(self, event: Event) -> int:
        scored = event.outcomes.values() if isinstance(event, events.Evaluated) else ()
        return sum(sum(outcomes.tokens) for outcomes in scored)

    @override
    def rehearsable(self, state: RunState) -> bool:
        return outlook.rehearsable(state)

    @override
    def rehearse(self, state: RunState) -> object:
        return outlook.rehearsed(state)

    @override
    def outlook(self, state: RunState, rehearsal: Any, under_way: UnderWay = ()) -> Outlook:
        """Return the run's `Outlook`: its rehearsal counts its tasks, its log gives their prices."""
        return outlook.outlook(state, rehearsal, under_way)
