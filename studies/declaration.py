"""Declaration of a study: what a phase writes. All else follows from it.

Settings, recipes and script must be written, with the table of arms and figures; the other methods
have defaults. No torch: methods that work on weights import what they need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from runs.kinds.outcome import figure_text
from runs.panels.panels import Panel
from studies import arm_panels, given_dtype
from studies.making.events import Making
from studies.making.making import MakingState
from studies.run import Run
from studies.scripted import Scripted
from studies.tables import Arm, words
from studies.training_plan import memory
from weights.recipes import Train

if TYPE_CHECKING:
    from studies.context import GivenContext
    from weights.folders.checkpoint import Checkpoint


S = TypeVar("S", bound=MakingState)


class Extent(NamedTuple):
    """Amount of work of a whole run."""

    #: Steps of all trainings, as steps of the slowest.
    steps: int
    #: Models in float32, and those rounded to the dtype of the given one.
    models: int
    rounded: int
    measurements: int
    #: What there is of steps, in words; empty: `steps`, none slower.
    counted: str = ""


class Declaration(Scripted[S]):
    """A study as a phase declares it."""

    state: ClassVar[type[MakingState]]

    # ---- what a phase writes: the table ------------------------------------------------------

    #: Arm → what it is. The order is that of pictures and tables.
    arms: ClassVar[Mapping[str, Arm]]
    #: The arm that the result stands beside, and trainings that curves show as references.
    baseline: ClassVar[str]
    references: ClassVar[Sequence[str]] = ()
    #: Title of the comparison, a sentence on its arms, and what the result is called.
    comparison_title: ClassVar[str]
    comparison_note: ClassVar[str] = arm_panels.SAME_WINDOWS
    result_title: ClassVar[str]
    #: Name of the training that takes longest: its first steps recognise a machine and make a forecast.
    #: Empty: the study has a `canary` of its own.
    slowest: ClassVar[str] = ""
    slowest_words: ClassVar[str] = "training"

    # ---- what a phase writes: recipes and script ---------------------------------------------

    def models_of(self, submitted: Any, started: Any) -> dict[str, Making]:
        """Return name → recipe of all that follows from what was pinned, each after its inputs."""
        raise NotImplementedError

    # ---- what a phase may write --------------------------------------------------------------

    def check_model(self, config: Any, opened: Checkpoint) -> None:
        """Raise ConfigError for a given model that the run cannot be of, before any work."""

    def sizes(self, base_config: Mapping[str, Any], config: Any) -> dict[str, Any]:
        """Return the settings of config.json in which the models differ from the given one."""
        return {}

    def pinned_fields(
        self, context: GivenContext[Any], common: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fields of `started` beside those that every study has."""
        return {}

    def fitted_module(self, context: GivenContext[Any], module: Any, measure: str) -> Any:
        """Return a model's module as it is measured."""
        return module

    def started_line(self, data: Mapping[str, Any]) -> str:
        """Return what `started` says on one line."""
        return f"{data['model']['parameters']:,} parameters, windows of {data['context']} tokens"

    def facts(self, run: Run) -> Mapping[str, tuple[Any, str]]:
        """Return name → (value, unit) of what is shown beside the result."""
        return {}

    def comparison_panels(self, run: Run, result_name: str) -> Sequence[Panel]:
        """Return the panels of the arms, once the arm `result_name` is measured."""
        arms = self.arms_of(run)
        title, note = self.comparison_title, self.comparison_note
        groups = arm_panels.groups(arms)
        compared = (words(arms), run.seen, run.leads, groups, result_name, self.baseline)
        return (
            arm_panels.arms(title, *compared, note),
            arm_panels.domains(words(arms), run.seen, result_name),
        )

    def own_panels(self, run: Run) -> Sequence[Panel]:
        """Return the panels beside arms, domains, curves and models."""
        return ()

    def arms_of(self, run: Run) -> Mapping[str, Arm]:
        """Return the arms of a run: those of the table."""
        return self.arms

    def references_of(self, run: Run) -> Sequence[str]:
        """Return the trainings that curves show as references."""
        return self.references

    def slowest_of(self, models: Mapping[str, Making]) -> Train | None:
        """Return the training that takes longest, of the recipes of a run by name."""
        return given_dtype.trainings(models).get(self.slowest)

    def arm_fields(self, arms: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the report with what was measured of the arms of `completed`."""
        return {"bits_per_byte": {name: dict(arm.bits_per_byte) for name, arm in arms.items()}}

    def report_fields(self, run: Run) -> dict[str, Any]:
        """Return the fields of the report beside those that every study has."""
        return {}

    def sentences(self, run: Run) -> list[str]:
        """Return what a completed run has found, as a list in Markdown."""
        out = []
        for name, figure in run.state.completed.figures.items():
            text, words = figure_text(self, name, figure), self.figures_of[name].rpartition(": ")[2]
            out.append(f"- {text[:1].upper()}{text[1:]}: {words}.")
        return out

    def next_steps(self, state: Any, name: str) -> list[str]:
        """Return commands that make sense after a run that is called `name`."""
        return []

    def card_words(self, run: Run, role: str) -> list[str]:
        """Return the paragraphs of a model's card before what the run has found."""
        return [f"The {words(self.arms_of(run)).get(str(run.result), role)}."]

    def further_folders(self, run: Run, out: Path) -> dict[str, str | None]:
        """Write further folders into a result's; return name → folder, None for one left out."""
        return {}

    def memory_of(self, submitted: Any, started: Any) -> int:
        """Return the bytes of weights, gradients and optimiser of a training, and of its teacher."""
        return memory(started.model.parameters, getattr(started, "trainable", None))

    def extent(self, run: Run) -> Extent:
        """Return how much there is to do in all, by what a run that has just started foresees."""
        rounded = given_dtype.halves(run.recipes)
        return Extent(
            steps=sum(recipe.upto for recipe in run.trainings.values()),
            models=len(run.recipes) - rounded,
            rounded=rounded,
            measurements=len(run.observations),
        )

    # ---- a run of it -------------------------------------------------------------------------

    def parameters(self, state: Any) -> int:
        """Return the number of the result's parameters: as many as the given model has."""
        return state.started.model.parameters
