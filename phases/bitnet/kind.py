"""BitNet as a kind of run: a model becomes ternary by training, beside its honest alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from evaluation.observing import Observe, Observed
from evaluation.observing import unasked as wrong_observation
from events import Envelope, Event, New
from phases.bitnet import findings, origins, plan
from phases.bitnet.config import BitnetConfig
from phases.bitnet.events import BitnetState, Completed, Forked, Started, Submitted
from phases.bitnet.view import BitnetView
from runs.event_types import Figure, MadeModel
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.kinds.forecast import Forecast
from runs.kinds.kind import Kind
from runs.kinds.origin import Origin
from runs.kinds.tasks import Decision, Start, Task
from runs.system.rounding import alike
from weights.making import making
from weights.making.events import Advanced, Made, Trained
from weights.making.making import Make
from weights.recipes import Train

if TYPE_CHECKING:
    from runs.home import Home


class Bitnet(BitnetView, Kind[BitnetState]):
    """A model with ternary weights (phase 4)."""

    name = "bitnet"
    title = "a bitnet run"
    line = "train a model to have ternary weights, and compare it with the alternatives"
    unit = "step"
    result_name = "models"
    config = BitnetConfig
    submitted = Submitted
    forked = Forked
    state = BitnetState
    answers: ClassVar[Mapping[type[Event], type]] = {
        Started: Start,
        Made: Make,
        Advanced: Make,
        Observed: Observe,
    }
    figures_of: ClassVar[Mapping[str, str]] = findings.FIGURES
    gives_items = True
    listed = frozenset({Advanced.type, Made.type, Trained.type, Observed.type})

    # ---- deciding ----------------------------------------------------------------------------

    def due(self, state: BitnetState) -> Decision:
        """Return what there is to do after `started`: make the models, choose, compare, end."""
        for wanted in _stages(state):
            decision = making.next_of(state, wanted, state.started.segment)
            if decision.facts or decision.tasks:
                return decision
        for asked in (findings.choosing(state), findings.comparing(state)):
            if tasks := [task for task in asked.values() if task.key not in state.answers]:
                return Decision(tasks=tasks)
        done = Completed(
            lineage_digest=state.lineage_digest(),
            chain_head=state.head,
            **_conclusions(state),
        )
        return Decision(facts=[New(done, f"{state.run}/completed")])

    def essential(self, state: BitnetState, task: str) -> bool:
        """Return True: without one of its models or figures the run has no result."""
        return True

    def unasked(self, state: BitnetState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Make) and isinstance(event, Made | Advanced):
            return making.unasked(task, event)
        if isinstance(task, Observe) and isinstance(event, Observed):
            return wrong_observation(task, event)
        return None

    def agrees(self, state: BitnetState, recorded: Event, found: Event) -> bool:
        """Return True if a second result does not contradict the recorded one.

        The length of segments is settled by the first `started`.
        """
        if isinstance(recorded, Started) and isinstance(found, Started):
            found = found.model_copy(update={"segment": recorded.segment})
        return super().agrees(state, recorded, found)

    def wrong_result(self, state: BitnetState) -> Iterator[str]:
        """Yield what `completed` says that the events before it contradict."""
        for name, value in _conclusions(state).items():
            if not alike(getattr(state.completed, name), value):
                yield f"the {name} are not those of the events before"

    # ---- asking for a run --------------------------------------------------------------------

    def plan(self, asked: Asked, lookup: Lookup) -> Plan:
        """Return the plan of a run, of a `model` and data or of what comes with the program."""
        from phases.bitnet import submission

        return submission.plan(self, asked, lookup)

    def placed(self, data: str) -> str:
        """Return PATH or DOMAIN=PATH with an absolute path; a data set of the Hub is fetched."""
        from evaluation.data.training_texts import absolute

        return absolute(data)

    def check(self, plan: Plan) -> Checked:
        """Open model (header only), tokenizer and data; raise the errors of a start."""
        from phases.bitnet import submission

        return submission.check(plan)

    def texts(self, submitted: Submitted) -> Iterator[tuple[str, str]]:
        """Yield the name of the model and the paths of data."""
        yield submitted.model.name, "a model's name"
        for path in submitted.data:
            yield path, "a path"

    # ---- scheduling --------------------------------------------------------------------------

    def memory(self, state: BitnetState) -> int:
        """Return the bytes of weights, gradients and optimiser of one training, and of a teacher."""
        if state.started is None:
            return 0
        teacher = 4 if state.submitted.config.distillation else 0
        return (16 + teacher) * state.started.model.parameters

    def built(self, row: Envelope) -> str | None:
        """Return the id of the snapshot that an event's row says was made, or None."""
        if row.type not in (Made.type, Advanced.type):
            return None
        return getattr(self.state.registry.load(row), "recipe_id", None)

    def needs(self, task: Any) -> str | None:
        """Return the id of the snapshot that a segment goes on from, or of the model that is read."""
        if isinstance(task, Observe):
            return task.recipe_id
        if not isinstance(task, Make):
            return None
        if isinstance(task.recipe, Train):
            return task.recipe.to(task.done).id if task.done else task.recipe.start
        return task.recipe.inputs.get("of")

    def tokens(self, event: Event) -> int:
        """Return the number of tokens that a segment read."""
        return event.tokens if isinstance(event, Advanced) else 0

    # ---- results and work --------------------------------------------------------------------

    def result_id(self, state: BitnetState) -> str | None:
        """Return the recipe id of the ternary model once it is made."""
        if state.started is None:
            return None
        found = plan.recipes(state)[plan.MODEL].id
        return found if found in state.made else None

    def result(self, state: BitnetState) -> str | None:
        """Return the digest of the ternary model's weights, or None."""
        found = self.result_id(state)
        return state.made[found].digest if found else None

    def roles(self, config: Any) -> Sequence[str]:
        """Return the ternary model and its master in full precision."""
        return origins.ROLES

    def results(self, state: BitnetState) -> dict[str, MadeModel]:
        """Return role → model."""
        return {
            role: MadeModel(recipe_id=one.recipe_id, digest=one.digest)
            for role, one in state.completed.models.items()
        }

    def figures(self, state: BitnetState) -> dict[str, Figure]:
        """Return what the comparison found."""
        return dict(state.completed.figures)

    def inputs(self, state: BitnetState) -> dict[str, list[str]]:
        """Return the digest of the given model."""
        return {"model": [state.started.model.digest]}

    def asked_for(self, given: Mapping[str, Any], config: Any) -> bool:
        """Return True if the settings are those; domains that were not given are those of the data."""
        return super().asked_for({"domains": config.domains, **given}, config)

    def items_address(self, state: BitnetState) -> str:
        """Return the content address of the run's text."""
        from evaluation.training_text import kept_text

        return kept_text.address(state.started.streams, state.started.files, state.started.items)

    def items_file(self, state: BitnetState, cache: Any) -> Path:
        """Return the file of the items that the run measures on."""
        from phases.bitnet.tasks import folders

        return folders.items_file(state, cache)

    def forecast(self, submitted: Submitted, cache: Any, folder: Path) -> Forecast:
        """Return what a run costs here, by its start, some steps and a measurement."""
        from phases.bitnet.tasks.forecast import forecast

        return forecast(submitted, cache, folder)

    def find(self, state: BitnetState, name: str) -> str:
        """Return the recipe id that a role, an id or the beginning of an id means."""
        return origins.find(state, name)

    def origin(self, state: BitnetState, rows: Sequence[Envelope], name: str) -> Origin:
        """Return the origin of a model; without a name, of the ternary one."""
        return origins.origin(state, rows, name)

    def settle(
        self, home: Home, state: BitnetState, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; make it again if need be."""
        from phases.bitnet.tasks import folders as model_folders

        return model_folders.settle(home, state, head, recipe_id, folders)

    def context(self, state: BitnetState, cache: Any) -> Any:
        """Open the run's text and model in this process."""
        from phases.bitnet.tasks.execute import Context
        from weights.threads import set_threads

        set_threads()
        return Context(state, cache)

    def keep(self, state: BitnetState, cache: Any) -> None:
        """Remove the snapshots of trainings that have ended: their results are on disk."""
        from phases.bitnet.tasks import execute

        if state.started is not None and state.made:
            execute.tidy(state, cache)

    def result_files(self, state: BitnetState, cache: Any) -> list[tuple[str, Path]]:
        """Return the weight files of model and master, made again if the cache lacks them."""
        from phases.bitnet.tasks import folders

        return folders.files(state, cache)

    def write_result(self, home: Home, state: BitnetState, out: Path) -> dict[str, Any]:
        """Write the folders of model, master and packed model, and the items; return the report."""
        from phases.bitnet.tasks import folders

        return folders.write(home, state, out)

    # ---- verification ------------------------------------------------------------------------

    def chosen(self, state: BitnetState, which: str) -> list[str]:
        """Return the recipe ids that "all", "champion" (the ternary model), a role or an id means."""
        if which == "all":
            return [one.id for one in plan.recipes(state).values() if one.id in state.made]
        return [self.find(state, plan.MODEL if which == "champion" else which)]

    def rebuild(
        self, state: BitnetState, cache: Any, ids: Sequence[str], tolerance: float | None, say: Any
    ) -> Iterator[Any]:
        """Make models again and compare the weights after every segment with the recorded ones."""
        from phases.bitnet.tasks import verify

        yield from verify.rebuild(state, cache, ids, tolerance, say)

    def cached(self, state: BitnetState, cache: Any) -> Iterator[Any]:
        """Yield an error for each of the run's models whose cached files have another digest."""
        from phases.bitnet.tasks import verify

        yield from verify.cached(state, cache)

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return the report of a folder of models; None if it has none."""
        from phases.bitnet.tasks import verify

        return verify.document(folder)

    def verify_folder(
        self, home: Home, folder: Path, document: dict[str, Any], state: Any, known: bool
    ) -> Iterator[Any]:
        """Compare the weights in a folder of models with the run's."""
        from phases.bitnet.tasks import verify

        yield from verify.folder(folder, document, state)


def _stages(state: BitnetState) -> Iterator[list[Any]]:
    """Yield the recipes that are made at the same time, each after those that it reads."""
    recipes = plan.recipes(state)
    first = [plan.START, *([plan.FRESH] if plan.FRESH in recipes else [])]
    last = [name for name in (plan.MODEL, plan.SCRATCH) if name in recipes]
    yield [recipes[name] for name in first]
    yield [recipe for name, recipe in recipes.items() if name not in (*first, *last)]
    yield [recipes[name] for name in last]


def _conclusions(state: BitnetState) -> dict[str, Any]:
    """Return the fields of `completed` that follow from what was made and measured."""
    return {
        "models": findings.results(state),
        "arms": findings.arms(state),
        "untrained": findings.chosen(state),
        "figures": findings.figures(state),
    }
