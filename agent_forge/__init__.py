"""The public Python API, a thin layer over what the commands use; docs/python.md is its reference.

    import agent_forge as forge

    models = {"sources": ["a", "b", "c"], "base": "base"}
    best = forge.run("evomerge", {"generations": 8}, models=models)

The import makes threads that wait for each other sleep instead of spin, as in `forge`, unless the
environment says otherwise (docs/benchmarks.md, "Waiting threads") or torch was imported before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from agent_forge.runs.system.process_limits import sleep_by_default

if TYPE_CHECKING:
    from agent_forge.evolution import EvoMerge, EvoMergePipeline, EvoMergeResult
    from agent_forge.evomerge.config import EvoMergeConfig
    from agent_forge.modules import export, load, load_tokenizer, score
    from agent_forge.notebook import (
        Run,
        ask,
        cancel,
        carry_on,
        fork,
        override,
        pause,
        priority,
        rename,
        resume,
        retry,
    )
    from agent_forge.pipelines import Ended, PipelineOrchestrator, run
    from agent_forge.registry import ModelRegistry, sessions
    from agent_forge.registry import open as open
    from agent_forge.specification import (
        ADASOptimizer,
        BitNetQuantizer,
        CapabilityBaker,
        FinalCompressor,
        ForgeTrainer,
        QuietSTaR,
        create_cognate_models,
    )

sleep_by_default()

#: Module → the public names that it has.
_NAMES = {
    "agent_forge.evolution": "EvoMerge EvoMergePipeline EvoMergeResult",
    "agent_forge.modules": "export load load_tokenizer score",
    "agent_forge.notebook": "Run ask cancel carry_on fork override pause priority rename resume retry",
    "agent_forge.pipelines": "Ended PipelineOrchestrator run",
    "agent_forge.registry": "ModelRegistry open sessions",
    "agent_forge.specification": "ADASOptimizer BitNetQuantizer CapabilityBaker FinalCompressor "
    "ForgeTrainer QuietSTaR create_cognate_models",
    "agent_forge.evomerge.config": "EvoMergeConfig",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

#: `open` is left out: a star import would hide that of Python.
__all__ = [
    "ADASOptimizer",
    "BitNetQuantizer",
    "CapabilityBaker",
    "Ended",
    "EvoMerge",
    "EvoMergeConfig",
    "EvoMergePipeline",
    "EvoMergeResult",
    "FinalCompressor",
    "ForgeTrainer",
    "ModelRegistry",
    "PipelineOrchestrator",
    "QuietSTaR",
    "Run",
    "ask",
    "cancel",
    "carry_on",
    "create_cognate_models",
    "export",
    "fork",
    "load",
    "load_tokenizer",
    "override",
    "pause",
    "priority",
    "rename",
    "resume",
    "retry",
    "run",
    "score",
    "sessions",
]


def __getattr__(name: str) -> object:
    """Return a public name's object; it is imported on first use, so that the package loads fast."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
