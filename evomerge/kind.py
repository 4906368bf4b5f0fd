"""EvoMerge as a kind of run: everything that the runner and the lists ask of merging runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from events import Envelope, Event
from evomerge import config as settings_of
from evomerge.config import EvoMergeConfig, parse
from evomerge.run import candidates, events, fork_rules, generations, origins, tasks, wording
from evomerge.run.answers import ANSWERS, unasked
from evomerge.run.decide import due
from evomerge.run.state import RunState
from runs.kinds import events as common
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.kinds.kind import Kind, Outlook
from runs.kinds.origin import Origin
from runs.kinds.tasks import Decision, Start

if TYPE_CHECKING:
    from runs.home import Home


class EvoMerge(Kind[RunState]):
    """Evolution of merges (phase 2)."""

    name = "evomerge"
    title = "a merging run"
    line = "search for the best way to merge fine-tuned models"
    unit = "generation"
    result_name = "champion"
    config = EvoMergeConfig
    submitted = events.Submitted
    forked = events.Forked
    state = RunState
    answers = ANSWERS
    listed = frozenset({events.GenerationCompleted.type})

    # ---- deciding ----------------------------------------------------------------------------

    def due(self, state: RunState) -> Decision:
        """Return what there is to do after `started`."""
        return due(state)

    def essential(self, state: RunState, task: str) -> bool:
        """Return True if nothing can be compared without it: start, profile, a source's score."""
        sources = {s.recipe_id for s in state.started.sources} if state.started else set()
        return task in (Start.key, tasks.Measure.key) or task.rpartition("/")[2] in sources

    def unasked(self, state: RunState, task: Any, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        return unasked(state, task, event)

    def agrees(self, state: RunState, recorded: Event, found: Event) -> bool:
        """Return True if a second result does not contradict the recorded one.

        Speed is measured, and what is probed depends on timing: of those the first result stands.
        """
        if isinstance(recorded, events.Profiled):
            return True
        assert state.submitted
        config = state.submitted.config
        probed = (config.batch_tokens, config.evaluation_dtype, config.evaluation_compile)
        if isinstance(recorded, events.Started) and "probe" in probed:
            return True
        return super().agrees(state, recorded, found)

    def essence(self, event: Event) -> str:
        """Return the digest or the components of a result."""
        data = common.luckless(event)
        return str(data.get("digest") or data.get("components") or data)

    def wrong_result(self, state: RunState) -> Iterator[str]:
        """Yield what `completed` says that the events before it contradict."""
        assert state.completed
        if state.completed.champion != state.champion:
            yield "the champion is not the one of the events before"

    # ---- forks -------------------------------------------------------------------------------

    def parse(self, given: Mapping[str, Any]) -> EvoMergeConfig:
        """Return the settings that a user gives. Raises ConfigError."""
        return parse(dict(given))

    def fault(self, error: Any) -> tuple[str, str]:
        """Return the flat name of the setting that an error is about, and what is wrong with it."""
        return settings_of.fault(error)

    def changed(self, config: EvoMergeConfig, changes: Mapping[str, Any]) -> EvoMergeConfig:
        """Return the settings with changes, under any of their names. Raises ConfigError."""
        return settings_of.changed(config, changes)

    def changes(self, before: EvoMergeConfig, after: EvoMergeConfig) -> dict[str, Any]:
        """Return the changes that `changed` turns `before` into `after` with, by flat names."""
        return settings_of.changes(before, after)

    def check_fork(self, state: RunState, changes: Mapping[str, Any]) -> None:
        """Raise ConfigError if a fork at this state may not change these settings."""
        fork_rules.check(state, changes)

    def fork_fields(self, config: EvoMergeConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the version of the fork's strategy, if the strategy changes."""
        from evomerge import search

        now = search.current(config) if changes else None
        return {"strategy": now if "strategy" in changes else None}

    def wrong_fork(self, state: RunState, fork: events.Forked) -> str | None:
        """Return why the fork's strategy is not that of its settings; None if it is."""
        named = (fork.strategy or "").partition("@")[0]
        if named != fork.changes.get("strategy", ""):
            return "the fork names another strategy than its settings"
        return None

    def place_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the place where a generation is measured but not yet closed."""
        return generations.before_close(rows, unit)

    def end_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the place right after a generation was closed."""
        return generations.after_close(rows, unit)

    # ---- asking for a run --------------------------------------------------------------------

    def plan(self, asked: Asked, lookup: Lookup) -> Plan:
        """Return the plan of a run over `sources` and a `base`. Raises ConfigError."""
        from evomerge import submission

        return submission.plan(asked, lookup)

    def check(self, plan: Plan) -> Checked:
        """Open models (headers only), tokenizer and data; raise the errors of a start."""
        from evomerge import submission

        return submission.check(plan)

    def texts(self, submitted: events.Submitted) -> Iterator[tuple[str, str]]:
        """Yield the names of models and the paths of data."""
        for model in (*submitted.sources, *filter(None, [submitted.base])):
            yield model.name, "a model's name"
        for path in submitted.data:
            yield path, "a path"

    # ---- what is shown -----------------------------------------------------------------------

    def shown(self, config: EvoMergeConfig) -> dict[str, Any]:
        """Return the settings, those of the search beside the others."""
        return config.flat()

    def names(self, state: RunState) -> dict[str, str]:
        """Return recipe id → what people call the recipe."""
        return wording.names(state)

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        return wording.own_gist(type_, data, names)

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if the key is no task's."""
        return wording.task(key, names)

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note an event in the run's row of the run list."""
        from evomerge.reports import rows

        rows.note(entry, event)

    def models(self, event: Event, state: RunState) -> list[dict[str, Any]]:
        """Return the base and the sources at `started`, the champion at `completed`."""
        from evomerge.reports import rows

        return rows.models(event, state)

    def progress(self, state: RunState) -> tuple[int, int | None]:
        """Return (generations that are closed, those in all if no budget says it), from 0 on."""
        wanted = state.submitted.config.generations_wanted if state.submitted else None
        return len(state.generations), None if wanted is None else wanted + 1

    def view(self, state: RunState) -> dict[str, Any]:
        """Return what the API says of a merging run beside what it says of every run."""
        from evomerge.reports import page

        return page.run(state)

    def part(self, state: RunState, name: str, **asked: Any) -> dict[str, Any]:
        """Return `population`, `candidate`, `lineage` or `layers`, as the API says it."""
        from evomerge.reports import parts

        return parts.part(state, name, asked)

    def report(self, state: RunState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        from evomerge.reports import report

        return report.report(state, rows)

    def message(self, state: RunState, unit: int | None = None) -> dict[str, Any]:
        """Return the source documents' progress message, at the end of a generation."""
        from evomerge.reports import page

        return page.progress(state, unit)

    def unit_of(self, row: Envelope) -> int | None:
        """Return the generation that an event closes, or None."""
        if row.type != events.GenerationCompleted.type:
            return None
        return getattr(events.REGISTRY.load(row), "generation", None)

    def ending(self, state: RunState) -> dict[str, Any]:
        """Return champion, score and results of the message that the run has ended."""
        from evomerge.reports import report

        done = state.completed
        return {
            "champion": state.champion,
            "score": done.test.scalar if done else None,
            "results": report.metrics(state) if done else {},
        }

    def snapshot(self, state: RunState) -> dict[str, Any]:
        """Return population, champion, diversity and pending tasks at a place of the history."""
        from evomerge.reports import snapshot

        return snapshot.view(state)

    def difference(self, a: RunState, b: RunState) -> dict[str, Any]:
        """Return how run B differs from run A."""
        from evomerge.reports import snapshot

        return snapshot.difference(a, b)

    def comparison(self, a: RunState, b: RunState) -> dict[str, Any]:
        """Return how two runs differ, with their generations side by side and their results."""
        from evomerge.reports import snapshot

        return snapshot.comparison(a, b)

    def layers(
        self, home: Home, state: RunState, recipe_id: str
    ) -> tuple[str, dict[str, Any] | None]:
        """Return the cache key of a candidate's attribution, and the attribution if it is known."""
        from evomerge.tasks import attribution

        return attribution.key(state, recipe_id), attribution.kept(home, state, recipe_id)

    def layers_command(self, run: str, recipe_id: str) -> list[str]:
        """Return the command that works out a candidate's attribution."""
        return [sys.executable, "-m", "evomerge.tasks.attribution", run, recipe_id]

    def settings(self) -> dict[str, Any]:
        """Return the settings: one flat JSON schema, defaults and strategies."""
        from evomerge import settings_table

        return settings_table.form()

    def tables(self) -> Mapping[str, Any]:
        """Return name → function of the tables for Parquet and notebooks."""
        from evomerge.reports import tables

        return tables.OWN

    def tracked(self, state: RunState, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return (generation, row) for a tracker."""
        from evomerge.reports import wandb_rows

        return wandb_rows.rows(state, after)

    def tracked_config(self, state: RunState) -> dict[str, Any]:
        """Return the settings for a tracker."""
        from evomerge.reports import wandb_rows

        return wandb_rows.config(state)

    def tracked_summary(self, state: RunState) -> dict[str, Any]:
        """Return the summary for a tracker."""
        from evomerge.reports import wandb_rows

        return wandb_rows.summary(state)

    def tracked_result(self, state: RunState) -> dict[str, Any] | None:
        """Return the champion as a tracker's artifact is described, or None."""
        from evomerge.reports import wandb_rows

        return wandb_rows.artifact(state)

    def rehearsable(self, state: RunState) -> bool:
        """Return True if a rehearsal of the run takes seconds."""
        from evomerge.run import outlook

        return outlook.rehearsable(state)

    def rehearse(self, state: RunState) -> Any:
        """Return the count of the run's tasks, or None if this version cannot decide it."""
        from evomerge.run import outlook

        return outlook.rehearsed(state)

    def outlook(
        self, state: RunState, rehearsal: Any, under_way: Sequence[tuple[str, float]] = ()
    ) -> Outlook:
        """Return the run's progress: its rehearsal counts its tasks, its log gives their prices."""
        from evomerge.run import outlook

        return outlook.outlook(state, rehearsal, under_way)

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: RunState) -> int:
        """Return the bytes of the weights at the deepest path, plus the measured peak of scoring."""
        return candidates.memory(state)

    def built(self, row: Envelope) -> str | None:
        """Return the recipe id that an event's row says was built, or None."""
        if row.type not in events.BUILT:
            return None
        return getattr(events.REGISTRY.load(row), "recipe_id", None)

    def needs(self, task: Any) -> str | None:
        """Return the recipe id of the candidate that a task measures, or None."""
        return task.recipe_id if isinstance(task, tasks.Evaluate) else None

    def tokens(self, event: Event) -> int:
        """Return the number of predicted tokens that were scored."""
        scored = event.outcomes.values() if isinstance(event, events.Evaluated) else ()
        return sum(sum(outcomes.tokens) for outcomes in scored)

    # ---- results and work --------------------------------------------------------------------

    def result(self, state: RunState) -> str | None:
        """Return the digest of the champion's weights, or None."""
        return state.built[state.champion][0] if state.champion else None

    def result_id(self, state: RunState) -> str | None:
        """Return the champion's recipe id, or None."""
        return state.champion

    def find(self, state: RunState, name: str) -> str:
        """Return the recipe id that "champion", an id or the beginning of an id means."""
        return candidates.find(state, name)

    def origin(self, state: RunState, rows: Sequence[Envelope], name: str) -> Origin:
        """Return a candidate's origin; without a name, the champion's. Raises NotFoundError."""
        return origins.origin(state, rows, name)

    def settle(
        self, home: Home, state: RunState, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; build it if need be."""
        from evomerge.tasks import model_folders

        return model_folders.settle(home, state, head, recipe_id, folders)

    def context(self, state: RunState, cache: Any) -> Any:
        """Open the run's models and data in this process."""
        from evomerge.tasks.execute import Context
        from weights.threads import set_threads

        set_threads()
        return Context(state, cache)

    def keep(self, state: RunState, cache: Any) -> None:
        """Write the champion and the elites to disk, if in memory: a restart needs them most."""
        from evomerge.tasks import champion

        champion.keep(state, cache)

    def result_files(self, state: RunState, cache: Any) -> list[tuple[str, Path]]:
        """Return the champion's weight files, built into the cache if the cache lacks them."""
        from evomerge.tasks import champion

        return champion.files(state, cache)

    def write_result(self, home: Home, state: RunState, out: Path) -> dict[str, Any]:
        """Write the champion's folder and the report beside its files; return the report."""
        from evomerge.tasks import champion_folder

        return champion_folder.write(home, state, out)

    # ---- verification ------------------------------------------------------------------------

    def chosen(self, state: RunState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" or the beginning of an id means."""
        from evomerge.tasks import verify

        return verify.chosen(state, which)

    def rebuild(
        self, state: RunState, cache: Any, ids: Sequence[str], tolerance: float | None, say: Any
    ) -> Iterator[Any]:
        """Build candidates from the sources again; with a tolerance, measure them again too."""
        from evomerge.tasks import verify

        yield from verify.rebuild(state, ids, tolerance, say, cache.supply)

    def cached(self, state: RunState, cache: Any) -> Iterator[Any]:
        """Yield an error for each of the run's candidates whose cached files have another digest."""
        from evomerge.tasks import verify

        yield from verify.artifacts(state, cache)

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return the recipe file of a champion's folder; None if it has none."""
        from evomerge.tasks import verify

        return verify.read_recipe(folder) if (folder / verify.RECIPE_FILE).exists() else None

    def verify_folder(
        self, home: Home, folder: Path, document: dict[str, Any], state: Any, known: bool
    ) -> Iterator[Any]:
        """Compare a champion's folder with its recipe file, and with its run if that is known."""
        from evomerge.tasks import verify, verify_folder
        from weights.checkpoint import open_checkpoint

        weights = open_checkpoint(folder).tensors()
        yield from verify.exported(weights, document, state)
        if known:
            yield from verify_folder.check(home, folder, document, weights)
