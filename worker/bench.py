"""What a process keeps in hand for a run: sources, data, the resident model, the builder.

Opening it at resume checks that everything is still what `started` recorded.
"""

from __future__ import annotations

import os
import platform
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from evomerge import checkpoints, facts, flow, search, sketch
from evomerge.build import Builder, Weights, not_finite
from evomerge.config import EvoMergeConfig
from evomerge.corpus import builtin, domains
from evomerge.corpus.documents import Slice
from evomerge.errors import (
    ConfigError,
    DataError,
    SourceChangedError,
    SourceError,
    UnavailableError,
)
from evomerge.fitness import cost, data
from evomerge.fitness.compiled import compiler
from evomerge.fitness.data import Item
from evomerge.fitness.evaluate import Judge
from evomerge.fitness.evaluator import BATCH_TOKENS
from evomerge.fitness.outcomes import Pool
from evomerge.fitness.packing import PackedData, pack
from evomerge.fitness.resident import ResidentModel
from evomerge.harness import items as tasks
from evomerge.harness.specs import is_task
from evomerge.home import threads
from evomerge.methods import frankenmerge
from evomerge.recipe import Source
from evomerge.sources import Family, open_family
from evomerge.state import RunState
from worker import pace
from worker.artifacts import Artifacts
from worker.measurable import measurable, why_not_run

#: Characters of built-in text per domain.
BUILTIN_CHARACTERS = 4_000_000


def load_items(paths: tuple[str, ...], allow_benchmarks: bool = False, seed: int = 0) -> list[Item]:
    """The run's items: its data files and tasks, or the built-in corpus.

    Raises DataError, UnavailableError.
    """
    if not paths:
        return data.from_rows(builtin.items(builtin.corpus(seed, BUILTIN_CHARACTERS), seed))
    if domains.NAME in paths:
        if len(paths) > 1:
            raise DataError(f"{domains.NAME} is whole in itself: give no other data beside it.")
        return data.from_rows(domains.items(seed))
    files = [Path(path) for path in paths if not is_task(path)]
    return data.load(files, tasks.rows(paths, allow_benchmarks))


def load_tokenizer(folder: str) -> Any:
    """The model folder's tokenizer. Raises SourceError."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"model {folder} has no usable tokenizer: {reason}") from error


def set_threads(count: int | None = None) -> None:
    """Use `count` threads (default: FORGE_THREADS, or every core we may run on)."""
    torch.set_num_threads(count or threads() or len(os.sched_getaffinity(0)))


def machine_profile(device: str, dtype: str = "", attention: str = "") -> facts.Profile:
    """What can change the last bit of a number on a device of this machine."""
    machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    if device.startswith("cuda"):
        machine += f" {torch.cuda.get_device_name(torch.device(device))}"
    return facts.Profile(
        device=device,
        dtype=dtype,
        threads=torch.get_num_threads(),
        batch_tokens=BATCH_TOKENS,
        attention=attention,
        machine=machine,
        torch=str(torch.__version__),
        transformers=transformers.__version__,
        numpy=np.__version__,
    )


class Bench:
    """Everything that tasks of one run need. Made from `submitted`, before or after `started`."""

    def __init__(self, state: RunState, artifacts: Artifacts) -> None:
        assert state.submitted
        self._submitted = state.submitted
        self.artifacts = artifacts
        self.state = state

    # ---- what was given ------------------------------------------------------------------

    @cached_property
    def family(self) -> Family:
        """The opened models."""
        base, sources = self.references
        return open_family(sources, base, self._submitted.config.strict)

    @cached_property
    def references(self) -> tuple[facts.ModelReference | None, tuple[facts.ModelReference, ...]]:
        """Base and sources where they are on this machine, fetched where they were not."""
        given, started = self._submitted, self.state.started
        known = (
            [None] * len(given.sources) if started is None else [s.digest for s in started.sources]
        )
        origin = None if started is None else started.base.digest
        find = self.artifacts.supply.model
        base = None if given.base is None else find(given.base, origin)
        return base, tuple(map(find, given.sources, known))

    @property
    def base_reference(self) -> facts.ModelReference:
        """The base, or the first source standing in for it."""
        base, sources = self.references
        return base or sources[0]

    @cached_property
    def origin(self) -> Weights:
        """The base's weights."""
        return self._open(self.family.base)

    @cached_property
    def source_weights(self) -> list[Weights]:
        """The sources' weights, in the order given."""
        return [self._open(c) for c in self.family.sources]

    def _open(self, checkpoint: checkpoints.Checkpoint) -> Weights:
        tensors = checkpoint.tensors()
        return tensors if self.family.tied else checkpoints.untied(tensors)

    @cached_property
    def digests(self) -> list[str]:
        """Digests of base and sources, the base first."""
        return [checkpoints.digest(w) for w in (self.origin, *self.source_weights)]

    @cached_property
    def items(self) -> list[Item]:
        """What fitness is measured on."""
        given, started = self._submitted.data, self.state.started
        digest = None if started is None else started.data_digest
        fetched = self.artifacts.supply.items(given, digest)
        allowed = self._submitted.config.allow_benchmarks
        return load_items(given, allowed) if fetched is None else fetched

    @property
    def resident(self) -> ResidentModel:
        """The model object that candidates' weights go into, run as the profile says."""
        return pace.follow(self._resident, self._submitted.config, self.state.started)

    @cached_property
    def _resident(self) -> ResidentModel:
        folder = Path(self.base_reference.path)
        return ResidentModel(folder, self.device, self.family.tied)

    @property
    def device(self) -> str:
        """The run's device; in a worker's process, the one GPU that it sees."""
        given = self._submitted.config.device
        own = os.environ.get("FORGE_DEVICE", given)
        return own if own.partition(":")[0] == given.partition(":")[0] else given

    @cached_property
    def context(self) -> int:
        """Tokens of a window: the setting, or the model's own limit where that is smaller."""
        return min(self._submitted.config.context, self.resident.positions or 1 << 30)

    @cached_property
    def packed(self) -> PackedData:
        """The items as token ids."""
        return pack(self._measurable[0], self.judge.tokenizer, self.context)

    @cached_property
    def _measurable(self) -> tuple[list[Item], tuple[str, ...]]:
        """The items without those that cannot be measured, and what is said of these."""
        builtin_ = domains.NAME in self._submitted.data
        return measurable(self.items, self.judge.tokenizer, self.context, builtin_, self.not_run)

    @cached_property
    def not_run(self) -> str:
        """Why items that run code are left out: as `started` says, or as it is on this machine."""
        if self.state.started is not None:
            return self.state.started.not_run
        return why_not_run(self.items, self.judge.verifier)

    @cached_property
    def judge(self) -> Judge:
        """Who reads and verifies replies."""
        return Judge(load_tokenizer(self.base_reference.path))

    def profile(self) -> facts.Profile:
        """What can change the last bit of a number, here and now."""
        dtype = str(next(iter(self.origin.values())).dtype).removeprefix("torch.")
        attention = str(self.resident.module.config._attn_implementation)
        evaluation = self.resident.dtype
        return machine_profile(self.device, dtype, attention).model_copy(
            update={
                "batch_tokens": self.resident.batch_tokens or BATCH_TOKENS,
                "evaluation": str(evaluation).removeprefix("torch.") if evaluation else "",
                "compiled": compiler(self.resident.device) if self.resident.compiled else "",
            }
        )

    # ---- started -------------------------------------------------------------------------

    def started(self) -> facts.Started:
        """Read and check everything; the event that pins it. Raises ConfigError."""
        config = self._submitted.config
        data.check_settings(self._measurable[0], config)
        check_paths(self.family, config)
        references = [self.base_reference, *self.references[1]]
        names = [reference.name for reference in references]
        weights = [self.origin, *self.source_weights]
        for name, tensors in zip(names, weights, strict=True):
            if bad := not_finite(tensors):
                raise SourceError(f"model {name}: tensor {bad} holds NaN or Inf.")
        records = [
            facts.SourceRecord(
                name=name,
                recipe_id=Source(digest=digest).id,
                digest=digest,
                sketch=sketch.sketch(tensors, self.origin),
                parameters=sum(t.numel() for t in tensors.values()),
            )
            for name, digest, tensors in zip(names, self.digests, weights, strict=True)
        ]
        _check_different(records[1:])
        probed = pace.probe(
            self.resident, config, weights, self.packed["train"], self.context
        )  # SourceError where names do not fit the architecture
        shapes = {name: tuple(t.shape) for name, t in self.origin.items()}
        width = next(iter(self.origin.values())).element_size()
        pools: dict[Slice, dict[str, Pool]] = {
            slice_: {domain: packed.pool() for domain, packed in sorted(domains.items())}
            for slice_, domains in self.packed.items()
        }
        supply, digest = self.artifacts.supply, data.digest(self.items)
        for reference, record in zip(references, records, strict=True):
            supply.share_model(reference, record.digest)
        supply.keep_items(self._submitted.data, self.items, digest)
        return facts.Started(
            base=records[0],
            sources=tuple(records[1:]),
            tied=self.family.tied,
            blocks=frankenmerge.blocks(list(self.origin)),
            cost=cost.cost(shapes, width, self.resident.config, self.context),
            block_cost=cost.of_block(shapes, width, self.resident.config, self.context),
            context=self.context,
            data_digest=digest,
            pools=pools,
            profile=self.profile(),
            warnings=self.family.warnings + self._measurable[1] + probed,
            strategy=search.current(config),
            not_run=self.not_run,
        )

    def check_unchanged(self) -> None:
        """Raise where a source, the data or the profile is not what `started` recorded."""
        self.check_sources()
        started = self.state.started
        assert started
        if data.digest(self.items) != started.data_digest:
            raise DataError(
                "the data has changed since the run started. Put the old files back, or start a "
                "new run."
            )
        if other := self.other_profile():
            raise UnavailableError(
                "this process does not match the profile that the run is pinned to: "
                f"{'; '.join(other)}. Resume it where it was started (FORGE_THREADS sets the "
                "number of threads, CXX the compiler)."
            )

    def check_sources(self) -> None:
        """Raise where a source's weights are not those that `started` recorded."""
        started = self.state.started
        assert started
        for record, found in zip((started.base, *started.sources), self.digests, strict=True):
            if record.digest != found:
                raise SourceChangedError(
                    f"model {record.name} has changed since the run started (its digest was "
                    f"{record.digest[:12]}, it is {found[:12]}). Put the old files back, or start "
                    "a new run."
                )

    def other_profile(self) -> list[str]:
        """What of the profile is different here; empty where numbers come out bit for bit."""
        assert self.state.started
        mine, theirs = self.profile().model_dump(), self.state.started.profile.model_dump()
        return [
            f"{k} is {mine[k] or 'not set'}, not {v or 'unset'}"
            for k, v in theirs.items() if mine[k] != v
        ]  # fmt: skip

    # ---- weights -------------------------------------------------------------------------

    @cached_property
    def _sources_by_id(self) -> dict[str, Weights]:
        assert self.state.started
        started = self.state.started
        pairs = zip(
            (started.base, *started.sources), (self.origin, *self.source_weights), strict=True
        )
        return {record.recipe_id: weights for record, weights in pairs}

    def _stored(self, recipe_id: str) -> Weights | None:
        source = self._sources_by_id.get(recipe_id)
        if source is not None:
            return source
        built = self.state.built.get(recipe_id)
        return self.artifacts.get(built[0]) if built else None

    @property
    def builder(self) -> Builder:
        """Builds recipes from what is known and at hand."""
        return Builder(self.state.recipes, self.weights_if_known)

    def weights_if_known(self, recipe_id: str) -> Weights | None:
        """Weights at hand, or rebuilt and checked where the log knows their digest."""
        stored = self._stored(recipe_id)
        if stored is not None or recipe_id not in self.state.built:
            return stored
        expected = self.state.built[recipe_id][0]
        weights = self.builder.build(self.state.recipes[recipe_id])
        found = checkpoints.digest(weights)
        if found != expected:
            raise SourceChangedError(
                f"candidate {recipe_id[:12]} rebuilt from its recipe has digest {found[:12]}, the "
                f"log says {expected[:12]}: this machine or its libraries compute differently."
            )
        self.artifacts.put(expected, weights)
        return weights

    def weights(self, recipe_id: str) -> Weights:
        """The weights of a recipe that the log knows."""
        weights = self.weights_if_known(recipe_id)
        if weights is None:
            raise ConfigError(f"recipe {recipe_id[:12]} was never built")
        return weights


def check_paths(family: Family, config: EvoMergeConfig) -> None:
    """Raise ConfigError where the settings want paths that these models do not allow."""
    if not config.path_repeats:
        return
    from transformers import AutoConfig

    found = AutoConfig.from_pretrained(family.base.folder, trust_remote_code=False)
    flow.check_architecture(found.to_dict())  # with what the file leaves to defaults
    blocks = int(found.get_text_config().num_hidden_layers)
    if config.path_blocks is not None and config.path_blocks < blocks:
        raise ConfigError(
            f"setting path_blocks: the models have {blocks} blocks, and no path could hold them with "
            f"{config.path_blocks}."
        )


def _check_different(records: list[facts.SourceRecord]) -> None:
    seen: dict[str, str] = {}
    for record in records:
        if record.digest in seen:
            raise SourceError(
                f"models {seen[record.digest]} and {record.name} hold the same weights. Every "
                "source must be another model."
            )
        seen[record.digest] = record.name
