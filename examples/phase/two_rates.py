"""A phase of your own, whole: a model is trained at two learning rates, and kept if that helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from agent_forge.runs.kinds.setting_words import TRAINING, Labels
from agent_forge.studies.comparison import TEST
from agent_forge.studies.events import MODEL, GivenCompleted, GivenStarted, GivenSubmitted, history
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.run import ArmLabel, Script, StudyRun, best, bits, lead, ratio
from agent_forge.studies.settings import Positive, TrainingConfig
from agent_forge.studies.study import Study
from agent_forge.studies.training_plan import as_float32, tokens, training

GIVEN, SLOW, FAST = "given", "slow", "fast"
MEASURE = "bits-per-byte@1"


class Config(TrainingConfig):
    """Settings: the two rates; how long is trained and on what, every training has."""

    labels: ClassVar[Labels] = {TRAINING: {"slow": "Lower rate", "fast": "Higher rate"}}

    slow: Positive = Field(1e-4, description="The lower one of the peak learning rates.")
    fast: Positive = Field(1e-3, description="The higher one.")


class Submitted(GivenSubmitted):
    """A run was asked for."""

    config: Config


class Started(GivenStarted):
    """Model, text and profile were pinned."""


class Completed(GivenCompleted):
    """Both models are trained and compared."""

    chosen: str


class TwoRates(Study[MakingState]):
    """Training at two learning rates."""

    name = "two-rates"
    title = "a run of two rates"
    line = "train a model at two learning rates, and keep it if that helps"
    state = history(name, Submitted, Started, Completed)
    result_title, comparison_title = "trained model", "Two rates beside the given model"
    as_given = (MODEL,)
    arms: ClassVar[Mapping[str, ArmLabel]] = {
        GIVEN: ArmLabel("the model that was given", "given"),
        SLOW: ArmLabel("trained at the lower rate", "trained"),
        FAST: ArmLabel("trained at the higher rate", "trained"),
    }
    baseline, slowest = GIVEN, FAST
    figure_rules = {
        "bits_per_byte": bits("bits per byte of the result, the mean over domains"),
        "retention": ratio(GIVEN, "bits per byte of the given model over the result's"),
        "gain": lead(GIVEN, "bits per byte that the given model needs more"),
    }

    def models_of(self, submitted: Submitted, started: Started) -> dict[str, Making]:
        """Return the given model in float32, and a training from it at each rate."""
        config, first = submitted.config, as_float32(started)
        rates = {SLOW: config.slow, FAST: config.fast}
        return {GIVEN: first} | {
            name: training(submitted, started, self.purpose, first.id, "lm@1", {}, rate)
            for name, rate in rates.items()
        }

    def script(self, run: StudyRun) -> Script:
        """Train, take the better one by the selection slice, keep it if it gains on the test slice."""
        run.foresee(self.models_of(run.submitted, run.started))
        yield run.make(GIVEN)
        yield run.make(SLOW, FAST)
        better = best((yield run.choose({name: run.on(name, MEASURE) for name in (SLOW, FAST)})))
        yield run.compare({name: run.on(name, MEASURE, TEST) for name in self.arms})
        gain = run.leads_of(better)[GIVEN]
        run.result = better if gain.low is not None and gain.low > 0 else GIVEN  # the gate
        return lambda: run.end(chosen=run.result)

    def facts(self, run: StudyRun) -> Mapping[str, tuple[Any, str]]:
        """Return what is shown beside the result."""
        return {"tokens of a training": (tokens(run.trainings[FAST]), "")}
