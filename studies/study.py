"""Studies: kinds of run that make models by a script, compare them as arms, and give one of them.

A study is settings, recipes, a script, and a table of arms and figures. What is due, found, shown,
written and verified follows from these. No torch: the work is in `studies/work.py`, which asks the
study for what is its own, in functions that import what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from events import Envelope, Event
from runs.kinds import default_panels
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.kinds.forecast import Forecast
from runs.kinds.origin import Origin
from runs.panels.head import Fact, Head, Result
from runs.panels.panels import Panel
from studies import arm_panels, origins, study_report, submission, training_panels
from studies.declaration import Declaration
from studies.events import MODEL, GivenCompleted
from studies.kind import answers
from studies.making.events import Making
from studies.making.making import MakingState
from studies.observing import Observe, Observed
from studies.one_result import OneResult
from studies.run import Run

if TYPE_CHECKING:
    from runs.home import Home
    from studies.work import Context

S = TypeVar("S", bound=MakingState)


class Study(Declaration, OneResult[S]):
    """A kind of run that is a script and a table."""

    # ---- deciding ----------------------------------------------------------------------------

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Derive the answers to tasks from the events."""
        super().__init_subclass__(**kwargs)
        if "answers" not in cls.__dict__ and hasattr(cls, "state"):
            cls.answers = answers(cls.state.registry.types()["started"])

    def memory(self, state: S) -> int:
        """Return the bytes that its trainings need on a device."""
        return self.memory_of(state.submitted, state.started) if state.started is not None else 0

    # ---- results -----------------------------------------------------------------------------

    def result_id(self, state: S) -> str | None:
        """Return the recipe id of the result once it is made."""
        run = self.begun(state)
        model = run.named.get(MODEL) if run else None
        return model.id if model is not None and model.id in state.made else None

    def named(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return self.run(state).named

    def recipes(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes, as far as it is known."""
        return self.run(state).recipes

    def observations(self, state: S) -> Sequence[Observe]:
        """Return all that the run measures, as far as it is known."""
        return [*self.run(state).observations.values()]

    def found(self, state: S) -> Mapping[str, Observed]:
        """Return arm → what was observed on the test slice, of those that are measured."""
        return self.run(state).seen

    # ---- shown -------------------------------------------------------------------------------

    def names(self, state: S) -> dict[str, str]:
        """Return recipe id → name, of the given model too."""
        if state.started is None:
            return {}
        given = {state.started.model.recipe_id: self.baseline} if self._given_arm(state) else {}
        return {**given, **super().names(state)}

    def _given_arm(self, state: S) -> bool:
        """Return True if the arm beside the result is the given model as it was given."""
        run = self.run(state)
        return self.baseline in self.arms and self.baseline not in run.recipes

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        return self.started_line(data) if type_ == "started" else super().gist(type_, data, names)

    def headline(self, run: Run) -> Result | None:
        """Return the result beside the baseline; None until both are measured."""
        return arm_panels.headline(run, self.result_title, self.arm_words(run), self.baseline)

    def head(self, state: S) -> Head:
        """Return the head: the result beside the baseline, and facts."""
        run = self.begun(state)
        if run is None:
            return default_panels.head(self, state)
        shown = (
            Fact(name=name, value=value, unit=unit)
            for name, (value, unit) in self.facts(run).items()
        )
        facts = (*training_panels.speed(state, self.trainings(state).values()), *shown)
        return default_panels.head(self, state, self.headline(run), facts)

    def panels(self, state: S, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return arms, domains, training curves, the study's own panels, and models."""
        run = self.begun(state)
        return [] if run is None else study_report.panels(self, run, self.curves(state))

    def report(self, state: S, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {
            "run": state.run,
            "lineage_digest": state.completed.lineage_digest,
            **self.whole_report(self.run(state)),
        }

    def whole_report(self, run: Run) -> dict[str, Any]:
        """Return the report of a run that has completed, as its folder has it."""
        return study_report.report(self, run)

    def card(self, run: Run, role: str) -> str:
        """Return a model's card."""
        return study_report.card(self, run, self.card_words(run, role))

    def summary(self, state: S, rows: Sequence[Envelope]) -> list[str]:
        """Return what a completed run has found."""
        return self.sentences(self.run(state)) if state.completed else []

    def lines(self, state: S) -> list[str]:
        """Return the report of a completed run as lines of text for a terminal."""
        run = self.run(state)
        return [*study_report.lines(self, run), *self.last_lines(run)]

    # ---- asking for a run --------------------------------------------------------------------

    def plan(self, asked: Asked, lookup: Lookup) -> Plan:
        """Return the plan of the run of one `model`.

        Raises ConfigError, DataError, UnavailableError.
        """
        return submission.plan(self, asked, lookup)

    def check(self, plan: Plan) -> Checked:
        """Open model (header only), tokenizer and data; raise the errors that a start would raise."""
        opened = submission.opened(plan)
        self.check_model(plan.config, opened)
        return submission.checked(plan, opened)

    # ---- work, in a process that may load torch ----------------------------------------------

    def forecast(self, submitted: Any, cache: Any, folder: Path) -> Forecast:
        """Return what a run that is submitted so costs here. Raises the errors of a start."""
        from studies.forecast import forecast

        return forecast(self, self._work(), submitted, cache, folder)

    def _work(self) -> type[Context]:
        """Return the class of contexts, which loads torch."""
        from studies.work import Context

        return Context

    def items_file(self, state: S, cache: Any) -> Path:
        """Return this machine's file of the items that a run has pinned. Raises ForgeError."""
        from evaluation.training_text.kept_text import ITEMS

        return self._work()(state, cache).text.folder / ITEMS

    def keep(self, state: S, cache: Any) -> None:
        """Remove the snapshots of trainings that have ended: their results are on disk."""
        if state.started is not None and state.made:
            self._work()(state, cache).tidy()

    # ---- models ------------------------------------------------------------------------------

    def origin(self, state: S, rows: Sequence[Envelope], name: str) -> Origin:
        """Return the origin of a model; without a name, of the result. Raises NotFoundError."""
        recipe_id = self.find(state, name or MODEL)
        roles = self.roles(state.submitted.config)
        known = {**self.named(state), **self.recipes(state)}
        model = origins.origin(state, known, recipe_id, roles)
        return replace(model, name=self.result_title) if model.name == MODEL else model

    def models(self, event: Event, state: S) -> list[dict[str, Any]]:
        """Return the models that it gives for the model registry, once they are measured."""
        if not isinstance(event, self.completed):
            return []
        folder, ended = state.submitted.output_dir, cast("GivenCompleted", event)
        id_ = ended.models[MODEL].recipe_id
        metrics = next(self.measured(arm) for arm in ended.arms.values() if arm.recipe_id == id_)
        return [
            {
                "name": f"{state.run}-{role}",
                "kind": "champion" if role == MODEL else "base",
                "digest": made.digest,
                "parameters": self.parameters(state),
                "path": f"{folder}/{role}" if folder else None,
                "metrics": metrics if role == MODEL else {},
                "lineage": [state.started.model.digest],
            }
            for role, made in ended.models.items()
        ]

    def settle(
        self, home: Home, state: S, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; make it again if need be. Raises ForgeError."""
        from studies import folders as files

        recipes = self.recipes(state)
        return files.settle(self._work(), home, state, head, recipes, recipe_id, folders)

    def result_files(self, state: S, cache: Any) -> list[tuple[str, Path]]:
        """Return the weight files of the models that it gives, made again if the cache lacks them."""
        from studies import folders as files

        run, roles = self.run(state), self.roles(state.submitted.config)
        context = self._work().to_read(state, cache, run.result_digests)
        return files.files(context, cache, [run.name_of(role) for role in roles])

    def write_result(self, home: Home, state: S, out: Path) -> dict[str, Any]:
        """Write the result's folder and return the report. Raises ForgeError."""
        from studies import folders as files

        return files.write(self, self._work(), home, state, out)

    # ---- verification ------------------------------------------------------------------------

    def _verification(self) -> Any:
        from studies.verify import Verification
        from weights.storage.output_folder import mark_of

        return Verification(self._work(), self.recipes, self.named, mark_of(self.name))

    def rebuild(
        self, state: S, cache: Any, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Make results again, and compare what comes out with what is recorded."""
        yield from self._verification().rebuild(state, cache, ids, say)

    def cached(self, state: S, cache: Any) -> Iterator[Any]:
        """Yield an error for each of the run's cached files that has another digest."""
        yield from self._verification().cached(state, cache)

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return the report of a result's folder; None if it has none. Raises DataError."""
        return self._verification().document(folder)

    def verify_folder(
        self, home: Home, folder: Path, document: dict[str, Any], state: S | None, known: bool
    ) -> Iterator[Any]:
        """Compare what is in a result's folder with the run."""
        yield from self._verification().folder(folder, document, state)
