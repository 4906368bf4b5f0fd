"""Phases 1 and 3 to 8 as the specification (document 003) sketches them.

    from agent_forge import QuietSTaR, create_cognate_models

    models = create_cognate_models(preset="tiny")
    model = QuietSTaR(tokens=16_384).enhance_reasoning(models[0])

Each call runs the phase's kind by `agent_forge.run`: an equal call means the same run, and an
interrupted run goes on. The call returns the model that the phase hands on, loaded. Settings of the
kind go to the constructor. `ended` has the run's name and figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from transformers import PreTrainedModel

from agent_forge import documents, pipelines
from agent_forge.modules import handed, load, named
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.home import Home

#: The domains of the documents' three specialists; the built-in text has them.
SPECIALTIES = ("reasoning", "memory", "general")


def create_cognate_models(
    data: Sequence[str | Path] = (), home: Home | str | Path | None = None, **settings: object
) -> list[object]:
    """Train specialists of one base (phase 1); return them as transformers models.

    By default there are three of 25 million parameters, which takes hours on a CPU; `preset="tiny"`
    takes minutes. With `data` there is a specialist for each of its domains.
    """
    usual = {} if data else {"domains": list(SPECIALTIES)}
    config = {"preset": "25m", **usual, **settings}
    ended = pipelines.run("cognate", config, data=data, home=home)
    return documents.load_phase1_models(ended.run, home)


class _Phase:
    """A phase that makes a model from another one."""

    kind: ClassVar[str]

    def __init__(
        self, data: Sequence[str | Path] = (), home: Home | str | Path | None = None, **settings: object
    ) -> None:
        """Store the kind's settings, the items to train and measure on, and the home folder."""
        self._data, self._home, self._settings = data, home, settings
        #: The run, once it has ended.
        self.ended: pipelines.Ended | None = None

    def _carried(self, model: object, **settings: object) -> PreTrainedModel:
        """Run the phase on `model` (name, module or hand-over); return the new model, loaded.

        Raises ForgeError.
        """
        home = Home.at(self._home)
        if isinstance(model, Mapping):
            model = handed(model, "model")
        config = {**settings, **self._settings}
        roles = {"model": [named(home, model)]}
        self.ended = pipelines.run(self.kind, config, roles, self._data, home=home)
        return load(self.ended.run, home=home)


class QuietSTaR(_Phase):
    """Phase 3: the model learns to think before each token."""

    kind = "quietstar"

    def enhance_reasoning(self, model: object) -> PreTrainedModel:
        """Train a model to think; return the new model, or the old one if thoughts gained nothing."""
        return self._carried(model)


class BitNetQuantizer(_Phase):
    """Phase 4: weights become ternary, -s, 0 or s with a scale `s` for each matrix."""

    kind = "bitnet"

    def quantize(self, model: object) -> PreTrainedModel:
        """Train a model with ternary weights; return the ternary model."""
        return self._carried(model)


class ForgeTrainer(_Phase):
    """Phase 5: an adaptive curriculum, compared with one in stages (chaos, dreams, a self-model)."""

    kind = "curriculum"

    def train(self, model: object, stages: int = 10) -> PreTrainedModel:
        """Train three curricula of `stages` segments; return the best model. Raises ConfigError."""
        if "segments" in self._settings:
            raise ConfigError("segments are the stages of `train`: give them there.")
        return self._carried(model, segments=stages, arms=["adaptive", "stages", "uniform"])


class CapabilityBaker(_Phase):
    """Phase 6: a model learns tools and personas."""

    kind = "baking"

    def bake(self, model: object) -> PreTrainedModel:
        """Train the use of tools, and personas, into a model's weights; return the trained model."""
        return self._carried(model)


class ADASOptimizer(_Phase):
    """Phase 7: a search for the best mixture of expert vectors."""

    kind = "experts"

    def apply_vectors(self, model: object) -> PreTrainedModel:
        """Train expert vectors and search their mixtures; return the best as a plain model."""
        return self._carried(model)


class FinalCompressor(_Phase):
    """Phase 8: a model is encoded in few bytes."""

    kind = "compression"

    def compress(self, model: object) -> PreTrainedModel:
        """Encode a model in few bytes; return the model decoded from its file."""
        return self._carried(model)
