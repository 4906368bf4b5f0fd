"""Phases 1 and 3 to 8 as the specification (document 003) sketches them.

    from agent_forge import QuietSTaR, create_cognate_models

    models = create_cognate_models(preset="tiny")
    model = QuietSTaR(tokens=16_384).enhance_reasoning(models[0])

Each call is a run of the phase's kind, by `agent_forge.run`: the same call means the same run, and one
that was interrupted goes on. What it returns is the model that the phase hands on, loaded. Settings
of the kind go to the constructor. `ended` has the run's name and figures.
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

#: What the documents' three specialists are for, as domains of the built-in text.
SPECIALTIES = ("reasoning", "memory", "general")


def create_cognate_models(
    data: Sequence[str | Path] = (), home: Home | str | Path | None = None, **settings: object
) -> list[object]:
    """Train the specialists of one base (phase 1); return them, loaded.

    By default three of 25 million parameters: hours on a CPU. `preset="tiny"` takes minutes. With data
    there is a specialist for each of its domains.
    """
    usual = {} if data else {"domains": list(SPECIALTIES)}
    config = {"preset": "25m", **usual, **settings}
    ended = pipelines.run("cognate", config, data=data, home=home)
    return documents.load_phase1_models(ended.run, home)


class _Phase:
    """A phase that makes one model of another."""

    kind: ClassVar[str]

    def __init__(
        self,
        data: Sequence[str | Path] = (),
        home: Home | str | Path | None = None,
        **settings: object,
    ) -> None:
        """Take the kind's settings, the items to train and measure on, and the home folder."""
        self._data, self._home, self._settings = data, home, settings
        #: The run, once it has ended.
        self.ended: pipelines.Ended | None = None

    def _carried(self, model: object, **settings: object) -> PreTrainedModel:
        """Carry the run of a model, or of that in a hand-over, to its end; return what it gives.

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
    """Phase 3: thoughts before tokens."""

    kind = "quietstar"

    def enhance_reasoning(self, model: object) -> PreTrainedModel:
        """Train a model to think; return it, or the given one if its thoughts gained nothing."""
        return self._carried(model)


class BitNetQuantizer(_Phase):
    """Phase 4: weights of -s, 0 and s."""

    kind = "bitnet"

    def quantize(self, model: object) -> PreTrainedModel:
        """Train a model to be ternary; return it."""
        return self._carried(model)


class ForgeTrainer(_Phase):
    """Phase 5: a curriculum, beside one in stages: chaos, dreams, a self-model."""

    kind = "curriculum"

    def train(self, model: object, stages: int = 10) -> PreTrainedModel:
        """Train a model in as many segments; return the best arm's. Raises ConfigError."""
        if "segments" in self._settings:
            raise ConfigError("segments are the stages of `train`: give them there.")
        return self._carried(model, segments=stages, arms=["adaptive", "stages", "uniform"])


class CapabilityBaker(_Phase):
    """Phase 6: tools and personas."""

    kind = "baking"

    def bake(self, model: object) -> PreTrainedModel:
        """Bake the use of tools, and personas, into a model; return it."""
        return self._carried(model)


class ADASOptimizer(_Phase):
    """Phase 7: experts and their mixtures."""

    kind = "experts"

    def apply_vectors(self, model: object) -> PreTrainedModel:
        """Train expert vectors and search their mixtures; return the best one, in plain weights."""
        return self._carried(model)


class FinalCompressor(_Phase):
    """Phase 8: few bytes."""

    kind = "compression"

    def compress(self, model: object) -> PreTrainedModel:
        """Encode a model in few bytes; return it as its file is read."""
        return self._carried(model)
