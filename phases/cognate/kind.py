"""Cognate as a kind of run: specialists of one base, trained, measured, and ready to be merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from evaluation.observing import Observe, Observed
from evaluation.observing import unasked as wrong_observation
from events import Envelope, Event, New
from phases.cognate import findings, origins, plan
from phases.cognate.config import CognateConfig
from phases.cognate.events import CognateState, Completed, Forked, Started, Submitted
from phases.cognate.view import CognateView
from runs.errors import ConfigError
from runs.event_types import Figure, MadeModel
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.kinds.forecast import Forecast
from runs.kinds.kind import Kind
from runs.kinds.origin import Origin
from runs.kinds.retries import failure
from runs.kinds.tasks import Decision, Start, Task
from runs.system.rounding import alike
from weights.making import making
from weights.making.events import Advanced, Made, Trained
from weights.making.making import Make
from weights.recipes import Train

if TYPE_CHECKING:
    from runs.home import Home


class Cognate(CognateView, Kind[CognateState]):
    """Specialists of one base (phase 1)."""

    name = "cognate"
    title = "a cognate run"
    line = "train a small base and specialists of it, to merge"
    unit = "step"
    result_name = "models"
    config = CognateConfig
    submitted = Submitted
    forked = Forked
    state = CognateState
    answers: ClassVar[Mapping[type[Event], type]] = {
        Started: Start,
        Made: Make,
        Advanced: Make,
        Observed: Observe,
    }
    figures_of: ClassVar[Mapping[str, str]] = {
        "lead": "bits per byte that the next best model needs more on a specialist's own domain, the "
        "least of all specialists"
    }
    gives_items = True
    listed = frozenset({Advanced.type, Made.type, Trained.type, Observed.type})

    # ---- deciding ----------------------------------------------------------------------------

    def due(self, state: CognateState) -> Decision:
        """Return what there is to do after `started`: the base, specialists, measuring, the end.

        A budget that is spent ends a run that has work left.
        """
        work = _work(state)
        if work.tasks and (over := _spent(state)):
            return Decision(facts=[failure(state, over)])
        if work.tasks or work.facts:
            return work
        if wrong := findings.no_specialist(state):
            return Decision(facts=[failure(state, wrong)])
        done = Completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            models=findings.results(state),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def essential(self, state: CognateState, task: str) -> bool:
        """Return True: without one of its models or figures the run has no result."""
        return True

    def unasked(self, state: CognateState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Make) and isinstance(event, Made | Advanced):
            return making.unasked(task, event)
        if isinstance(task, Observe) and isinstance(event, Observed):
            return wrong_observation(task, event)
        return None

    def agrees(self, state: CognateState, recorded: Event, found: Event) -> bool:
        """Return True if a second result does not contradict the recorded one.

        How long segments are, and in how many parts a step is computed where there is less memory, is
        settled by the first `started`.
        """
        if isinstance(recorded, Started) and isinstance(found, Started):
            settled: dict[str, Any] = {"segment": recorded.segment}
            if found.accumulation != recorded.accumulation:
                for name in ("accumulation", "canary", "warnings"):
                    settled[name] = getattr(recorded, name)
            found = found.model_copy(update=settled)
        return super().agrees(state, recorded, found)

    def wrong_result(self, state: CognateState) -> Iterator[str]:
        """Yield what `completed` says that the events before it contradict."""
        if not alike(state.completed.models, findings.results(state)):
            yield "the models are not those of the events before"

    def check_fork(self, state: CognateState, changes: Mapping[str, Any]) -> None:
        """Raise ConfigError if a change would touch what is made already."""
        if not changes or state.started is None:
            return
        free = {"max_hours", "max_device_hours"}
        for name in changes:
            if name == "domains":
                _check_domains(state, changes[name])
            elif name not in free:
                raise ConfigError(
                    f"setting {name} cannot change in a fork of a cognate run that has started: models "
                    "are made with it. Start a new run instead."
                )

    # ---- asking for a run --------------------------------------------------------------------

    def plan(self, asked: Asked, lookup: Lookup) -> Plan:
        """Return the plan of a run, of a `base` and data or of what comes with the program."""
        from phases.cognate import submission

        return submission.plan(self, asked, lookup)

    def placed(self, data: str) -> str:
        """Return PATH or DOMAIN=PATH with an absolute path; a data set of the Hub is fetched."""
        from evaluation.data.training_texts import absolute

        return absolute(data)

    def check(self, plan: Plan) -> Checked:
        """Open base (header only), tokenizer and data; raise the errors of a start."""
        from phases.cognate import submission

        return submission.check(plan)

    def texts(self, submitted: Submitted) -> Iterator[tuple[str, str]]:
        """Yield the name of the base and the paths of data."""
        if submitted.base is not None:
            yield submitted.base.name, "a model's name"
        for path in submitted.data:
            yield path, "a path"

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: CognateState) -> int:
        """Return the bytes of weights, gradients and optimiser of one training."""
        return 16 * state.started.parameters if state.started else 0

    def built(self, row: Envelope) -> str | None:
        """Return the id of the snapshot that an event's row says was made, or None."""
        if row.type not in (Made.type, Advanced.type):
            return None
        return getattr(self.state.registry.load(row), "recipe_id", None)

    def needs(self, task: Any) -> str | None:
        """Return the id of the snapshot that a segment goes on from, or of the model measured."""
        if isinstance(task, Observe):
            return task.recipe_id
        if isinstance(task, Make) and isinstance(task.recipe, Train):
            return task.recipe.to(task.done).id if task.done else task.recipe.start
        return None

    def tokens(self, event: Event) -> int:
        """Return the number of tokens that a segment read."""
        return event.tokens if isinstance(event, Advanced) else 0

    # ---- results and work --------------------------------------------------------------------

    def result_id(self, state: CognateState) -> str | None:
        """Return the base's recipe id once it is made: the model that people mean by the run."""
        made = state.made.get(plan.models(state)[plan.BASE].id) if state.started else None
        return made.recipe_id if made else None

    def result(self, state: CognateState) -> str | None:
        """Return the digest of the base's weights, or None."""
        found = self.result_id(state)
        return state.made[found].digest if found else None

    def roles(self, config: CognateConfig) -> Sequence[str]:
        """Return base and specialists."""
        return [plan.BASE, *config.domains]

    def results(self, state: CognateState) -> dict[str, MadeModel]:
        """Return role → model."""
        return {
            role: MadeModel(recipe_id=one.recipe_id, digest=one.digest)
            for role, one in state.completed.models.items()
        }

    def figures(self, state: CognateState) -> dict[str, Figure]:
        """Return the least lead that a specialist has on its own domain."""
        leads = [one.lead for one in state.completed.models.values() if one.lead is not None]
        least = min(leads, key=lambda lead: lead.low)
        return {"lead": Figure(value=least.difference, low=least.low, high=least.high)}

    def inputs(self, state: CognateState) -> dict[str, list[str]]:
        """Return the digest of the base that was given, if one was."""
        return {"base": [state.started.base.digest]} if state.started.base else {}

    def asked_for(self, given: Mapping[str, Any], config: CognateConfig) -> bool:
        """Return True if the settings are those; domains that were not given are those of the data."""
        return super().asked_for({"domains": config.domains, **given}, config)

    def items_address(self, state: CognateState) -> str:
        """Return the content address of the run's text."""
        from evaluation.training_text import kept_text

        return kept_text.address(state.started.streams, state.started.files, state.started.items)

    def items_file(self, state: CognateState, cache: Any) -> Path:
        """Return the file of the items that the run measures on."""
        from phases.cognate.tasks import folders as model_folders

        return model_folders.items_file(state, cache)

    def forecast(self, submitted: Submitted, cache: Any, folder: Path) -> Forecast:
        """Return what a run costs here, by its start, some steps and a measurement."""
        from phases.cognate.tasks.forecast import forecast

        return forecast(submitted, cache, folder)

    def find(self, state: CognateState, name: str) -> str:
        """Return the recipe id that a role, an id or the beginning of an id means."""
        return origins.find(state, name)

    def origin(self, state: CognateState, rows: Sequence[Envelope], name: str) -> Origin:
        """Return the origin of the model with a role. Raises NotFoundError."""
        return origins.origin(state, rows, name)

    def settle(
        self, home: Home, state: CognateState, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; make it again if need be."""
        from phases.cognate.tasks import folders as model_folders

        return model_folders.settle(home, state, head, recipe_id, folders)

    def context(self, state: CognateState, cache: Any) -> Any:
        """Open the run's text and tokenizer in this process."""
        from phases.cognate.tasks.execute import Context
        from weights.threads import set_threads

        set_threads()
        return Context(state, cache)

    def keep(self, state: CognateState, cache: Any) -> None:
        """Remove the snapshots of trainings that have ended: their results are on disk."""
        from phases.cognate.tasks import execute

        if state.started is not None and state.made:
            execute.tidy(state, cache)

    def result_files(self, state: CognateState, cache: Any) -> list[tuple[str, Path]]:
        """Return the weight files of base and specialists, made again if the cache lacks them."""
        from phases.cognate.tasks import folders as model_folders

        return model_folders.files(state, cache)

    def write_result(self, home: Home, state: CognateState, out: Path) -> dict[str, Any]:
        """Write the folders of base and specialists and the items; return the report."""
        from phases.cognate.tasks import folders as model_folders

        return model_folders.write(home, state, out)

    # ---- verification ------------------------------------------------------------------------

    def chosen(self, state: CognateState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the base), a role or an id means."""
        if which == "all":
            return [recipe.id for recipe in plan.models(state).values() if recipe.id in state.made]
        return [self.find(state, plan.BASE if which == "champion" else which)]

    def rebuild(
        self, state: CognateState, cache: Any, ids: Sequence[str], tolerance: float | None, say: Any
    ) -> Iterator[Any]:
        """Train models again and compare the weights after every segment with the recorded ones."""
        from phases.cognate.tasks import verify

        yield from verify.rebuild(state, cache, ids, tolerance, say)

    def cached(self, state: CognateState, cache: Any) -> Iterator[Any]:
        """Yield an error for each of the run's models whose cached files have another digest."""
        from phases.cognate.tasks import verify

        yield from verify.cached(state, cache)

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return the report of a folder of models; None if it has none."""
        from phases.cognate.tasks import verify

        return verify.document(folder)

    def verify_folder(
        self, home: Home, folder: Path, document: dict[str, Any], state: Any, known: bool
    ) -> Iterator[Any]:
        """Compare the weights in a folder of models with the run's."""
        from phases.cognate.tasks import verify

        yield from verify.folder(folder, document, state)


def _work(state: CognateState) -> Decision:
    """Return the open tasks, or the trainings that have ended; empty if all is made and measured."""
    models = plan.models(state)
    base = models.pop(plan.BASE)
    initial = plan.initial(state.submitted, state.started)
    for wanted in ([initial], [base], list(models.values())):
        decision = making.next_of(state, wanted, state.started.segment)
        if decision.facts or decision.tasks:
            return decision
    asked = findings.observations(state)
    return Decision(tasks=[task for task in asked if task.key not in state.answers])


def _check_domains(state: CognateState, domains: Sequence[str]) -> None:
    """Raise ConfigError unless a fork keeps every specialist that is begun, and adds known text."""
    models = plan.specialists(state.submitted, state.started)
    for domain, recipe in models.items():
        if state.steps(recipe) and domain not in domains:
            raise ConfigError(f"the {domain} specialist is begun: a fork here keeps it in domains.")
    for domain in domains:
        if domain not in state.started.streams:
            raise ConfigError(
                f"the run has pinned no text of {domain}: a fork can add "
                f"{', '.join(sorted(set(state.started.streams) - set(models)))} only."
            )


def _spent(state: CognateState) -> str:
    """Return why the run's budget ends it; empty if it does not."""
    config, spent = state.submitted.config, state.spent
    for name, hours, seconds in (
        ("max_hours", config.max_hours, spent.wall),
        ("max_device_hours", config.max_device_hours, spent.device),
    ):
        if hours is not None and seconds >= hours * 3600:
            return (
                f"{name} is spent: {seconds / 3600:.2f} hours. A fork with more goes on from here."
            )
    return ""
