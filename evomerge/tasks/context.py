"""The run context of a process: sources, data, the resident model, the builder.

`Bench.check_unchanged`, called when a started run is opened, checks all this against `started`.
Batch size, dtype and compilation of the resident model are set, probed or pinned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch

from agent_forge.evaluation import autotune, kept_items
from agent_forge.evaluation.autotune import machine_profile, unsuited
from agent_forge.evaluation.backends import inductor
from agent_forge.evaluation.backends.backend import BATCH_TOKENS
from agent_forge.evaluation.backends.inductor import compiler
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.items import Item
from agent_forge.evaluation.data.outcomes import Pool
from agent_forge.evaluation.data.packing import ItemPack, PackedData, pack
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.evaluate import Judge, measurable, why_not_run
from agent_forge.evaluation.loading import load_items, load_tokenizer, made_for_any_model
from agent_forge.evomerge import data_settings, search
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.merging import sketch
from agent_forge.evomerge.merging.builder import Builder, Weights, not_finite
from agent_forge.evomerge.merging.dataflow import check_paths
from agent_forge.evomerge.recipes.recipe import Recipe, Source
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.events import Started
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import candidates
from agent_forge.evomerge.tasks import merge
from agent_forge.runs.errors import ConfigError, SourceChangedError, SourceError
from agent_forge.weights import block_names, cost
from agent_forge.weights.devices import of_run
from agent_forge.weights.folders import checkpoint as weights_checkpoint
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.sources import OpenedModels, open_family
from agent_forge.weights.storage.inputs import check_named
from agent_forge.weights.storage.weight_cache import Artifacts

log = logging.getLogger(__name__)

#: Bytes of weights that may be built together, at most.
TOGETHER = 2 << 30


class MergeContext:
    """The run context: all objects that tasks of one run need, opened when first used.

    It is made from `submitted`, before or after `started`.
    """

    def __init__(self, state: RunState, artifacts: Artifacts) -> None:
        assert state.submitted
        self._submitted = state.submitted
        self.artifacts = artifacts
        self.state = state
        #: Recipe id → weights that were built ahead of their task, and their share of the seconds.
        self._ahead: dict[str, tuple[Weights, float]] = {}

    # ---- what was given ------------------------------------------------------------------

    @cached_property
    def family(self) -> OpenedModels:
        """The opened models, read from this machine's own copies."""
        submission = self._submitted
        copies = {m.path: place for m, place in zip(self._given, self.copies, strict=True)}
        return open_family(submission.sources, submission.base, submission.config.strict, copies)

    @property
    def _given(self) -> tuple[events.ModelReference, ...]:
        """The models as the user named them, first the base (or the first source in its place)."""
        return (self._submitted.base or self._submitted.sources[0], *self._submitted.sources)

    @cached_property
    def copies(self) -> tuple[Path, ...]:
        """Folders of base and sources on this machine, the base first."""
        started, places = self.state.started, dict[str, Path]()
        nothing = [None] * len(self._given)
        pinned = nothing if started is None else (started.base, *started.sources)
        for model, record in zip(self._given, pinned, strict=True):
            if model.path not in places:  # the first source may stand in for the base
                places[model.path] = self.artifacts.supply.model(model, record)
        return tuple(places[model.path] for model in self._given)

    @cached_property
    def origin(self) -> Weights:
        """The base's weights."""
        return self._open(self.family.base)

    @cached_property
    def source_weights(self) -> list[Weights]:
        """The sources' weights, in the order given."""
        return [self._open(c) for c in self.family.sources]

    def _open(self, checkpoint: weights_checkpoint.Checkpoint) -> Weights:
        tensors = checkpoint.tensors()
        return tensors if self.tied else weights_checkpoint.untied(tensors)

    @property
    def tied(self) -> bool:
        """True if the merged model's head is its embedding: as the run started."""
        started = self.state.started
        return self.family.tied if started is None else started.tied

    @cached_property
    def digests(self) -> list[str]:
        """BLAKE3 digests of the weights of base and sources, the base first."""
        return [weights_checkpoint.digest(w) for w in (self.origin, *self.source_weights)]

    @cached_property
    def items(self) -> list[Item]:
        """The items of the run's data: the pinned ones if they are kept, else read from the files."""
        run_data, started = self._submitted.data, self.state.started
        digest = None if started is None else started.data_digest
        fetched = kept_items.pinned(self.artifacts.supply, run_data, digest)
        allowed = self._submitted.config.allow_benchmarks
        return (
            load_items(run_data, allowed, self.family.base.parameters) if fetched is None else fetched
        )

    @property
    def resident(self) -> ResidentModel:
        """The model object that takes the candidates' weights, set up by the run's profile."""
        return follow(self._resident, self._submitted.config, self.state.started)

    @cached_property
    def _resident(self) -> ResidentModel:
        return ResidentModel(self.copies[0], self.device, self.tied)

    @property
    def device(self) -> str:
        """The run's device, as this process names it."""
        return of_run(self.state)

    @cached_property
    def context(self) -> int:
        """Tokens of a window: the setting, or the model's own limit if that is smaller."""
        return min(self._submitted.config.context, self.resident.positions or 1 << 30)

    @cached_property
    def packed(self) -> PackedData:
        """The measurable items as token ids, by slice and domain."""
        return pack(self._measurable[0], self.judge.tokenizer, self.context)

    @cached_property
    def _measurable(self) -> tuple[list[Item], tuple[str, ...]]:
        """(the items that can be measured, messages about those that cannot)."""
        is_builtin = made_for_any_model(self._submitted.data)
        return measurable(self.items, self.judge.tokenizer, self.context, is_builtin, self.not_run)

    @cached_property
    def not_run(self) -> str:
        """The reason why items that run code are left out, as `started` or this machine says; or ''."""
        if self.state.started is not None:
            return self.state.started.not_run
        return why_not_run(self.items, self.judge.verifier)

    @cached_property
    def judge(self) -> Judge:
        """The judge, which reads and verifies replies, with the model's tokenizer."""
        return Judge(load_tokenizer(str(self.copies[0])))

    def profile(self) -> events.Profile:
        """Return the profile of this process: all facts that can change the last bit of a number."""
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

    def started(self) -> events.Started:
        """Return the event that pins models and data, after reading and checking them.

        Models and items are put into the shared store. Raises ConfigError, SourceError.
        """
        config = self._submitted.config
        data_settings.check_settings(self._measurable[0], config)
        check_paths(self.family, config)
        weights = [self.origin, *self.source_weights]
        records = self._records(weights)
        _check_different(records[1:])
        probed = probe(
            self.resident, config, weights, self.packed["train"], self.context
        )  # raises SourceError if tensor names do not fit the architecture
        names = [model.name for model in self._given]
        strange = merge.other_tokens(names, self.copies, config.strict)
        strange += merge.strange(self._given, self.copies)
        places = [Path(reference.path) for reference in self._given]  # copies have no folders
        strange += merge.left_behind(self._given, places)
        shapes = {name: tuple(t.shape) for name, t in self.origin.items()}
        width = next(iter(self.origin.values())).element_size()
        pools: dict[Slice, dict[str, Pool]] = {
            slice_: {domain: packed.pool() for domain, packed in sorted(domains.items())}
            for slice_, domains in self.packed.items()
        }
        supply, digest = self.artifacts.supply, data_items.digest(self.items)
        for place in self.copies:
            supply.share_model(place)
        kept_items.keep(supply, self._submitted.data, self.items, digest)
        return events.Started(
            base=records[0],
            sources=tuple(records[1:]),
            tied=self.family.tied,
            blocks=block_names.count(list(self.origin)),
            cost=cost.cost(shapes, width, self.resident.config, self.context),
            block_cost=cost.of_block(shapes, width, self.resident.config, self.context),
            context=self.context,
            data_digest=digest,
            pools=pools,
            profile=self.profile(),
            warnings=self.family.warnings + strange + self._measurable[1] + probed,
            strategy=search.current(config),
            not_run=self.not_run,
            together=self.resident.together,
            many_replies=self.resident.many_replies,
        )

    def _records(self, weights: Sequence[Weights]) -> list[events.SourceRecord]:
        """Return a list of `SourceRecord`, of the base and then the sources. Raises SourceError."""
        names = [reference.name for reference in self._given]
        for named in zip(self._given, self.digests, self.copies, strict=True):
            check_named(*named)
        for name, tensors in zip(names, weights, strict=True):
            if bad := not_finite(tensors):
                raise SourceError(f"model {name}: tensor {bad} holds NaN or Inf.")
        return [
            events.SourceRecord(
                name=name,
                recipe_id=Source(digest=digest).id,
                digest=digest,
                sketch=sketch.sketch(tensors, self.origin),
                parameters=sum(t.numel() for t in tensors.values()),
                model=place.name,
                files=companions.digests(place),
            )
            for name, digest, tensors, place in zip(
                names, self.digests, weights, self.copies, strict=True
            )
        ]

    def check_unchanged(self) -> None:
        """Raise SourceChangedError, DataError, UnavailableError for other sources, data or profile."""
        self.check_sources()
        started = self.state.started
        assert started
        kept_items.check_unchanged(self.items, started.data_digest)
        if other := self.other_profile():
            raise unsuited(other, ", CXX the compiler")

    def check_sources(self) -> None:
        """Raise SourceChangedError if a source's weights are not those that `started` recorded.

        This machine's own copy is made again, if it is damaged, from the files that the user named.
        """
        started = self.state.started
        assert started
        records = (started.base, *started.sources)
        triples = list(zip(records, self.digests, self.copies, strict=True))
        damaged = [c for r, digest, c in triples if r.digest != digest and r.model == c.name]
        if damaged:
            for place in damaged:
                self.artifacts.supply.forget(place)
            for name in ("copies", "family", "origin", "source_weights", "digests"):
                self.__dict__.pop(name, None)
        for record, digest in zip(records, self.digests, strict=True):
            if record.digest != digest:
                raise SourceChangedError(
                    f"model {record.name} has changed since the run started (its digest was "
                    f"{record.digest[:12]}, it is {digest[:12]}). Put the old files back, or start "
                    "a new run."
                )

    def other_profile(self) -> list[str]:
        """Return the differences from the run's profile; [] if numbers come out bit for bit."""
        assert self.state.started
        return self.profile().unlike(self.state.started.profile)

    # ---- weights -------------------------------------------------------------------------

    @cached_property
    def _sources_by_id(self) -> dict[str, Weights]:
        assert self.state.started
        started = self.state.started
        pairs = zip((started.base, *started.sources), (self.origin, *self.source_weights), strict=True)
        return {record.recipe_id: weights for record, weights in pairs}

    def _stored(self, recipe_id: str) -> Weights | None:
        source = self._sources_by_id.get(recipe_id)
        if source is not None:
            return source
        built = self.state.built.get(recipe_id)
        return self.artifacts.get(built[0]) if built else None

    @property
    def builder(self) -> Builder:
        """The builder of recipes, with the run's recipes and the weights that are known."""
        return Builder(self.state.recipes, self.weights_if_known)

    @property
    def together(self) -> int:
        """The number of models that may be built together: TOGETHER bytes of weights, at least one."""
        return max(1, TOGETHER // sum(t.numel() * t.element_size() for t in self.origin.values()))

    def build_ahead(self, recipes: Sequence[Recipe]) -> None:
        """Build recipes of open tasks in one pass, as many as TOGETHER allows; `build` then has them.

        The caller holds these tasks. If a recipe cannot be built, none is: each task then builds its
        own, and fails by itself. Weights of an earlier call that are not asked for are dropped.
        """
        recipes_by_id = {recipe.id: recipe for recipe in list(recipes)[: self.together]}
        self._ahead = {id_: build for id_, build in self._ahead.items() if id_ in recipes_by_id}
        chosen = [recipe for id_, recipe in recipes_by_id.items() if id_ not in self._ahead]
        if len(chosen) < 2:
            return
        began = time.perf_counter()
        try:
            models = self.builder.build_many(chosen)
        except Exception as error:
            log.debug("candidates are built one by one", exc_info=error)
            return
        each = (time.perf_counter() - began) / len(chosen)
        self._ahead |= {r.id: (weights, each) for r, weights in zip(chosen, models, strict=True)}

    def build(self, recipe: Recipe) -> tuple[Weights, float]:
        """Return (weights of a recipe, built ahead or now; seconds that were spent ahead)."""
        return self._ahead.pop(recipe.id, None) or (self.builder.build(recipe), 0.0)

    def weights_if_known(self, recipe_id: str) -> Weights | None:
        """Return the weights of a recipe, stored or rebuilt; None if it was never built.

        The log has the digest of what was built. Raises SourceChangedError if the rebuilt weights
        have another digest.
        """
        stored = self._stored(recipe_id)
        if stored is not None or recipe_id not in self.state.built:
            return stored
        expected = self.state.built[recipe_id][0]
        weights = self.builder.build(self.state.recipes[recipe_id])
        rebuilt_digest = weights_checkpoint.digest(weights)
        if rebuilt_digest != expected:
            raise SourceChangedError(
                f"candidate {recipe_id[:12]} rebuilt from its recipe has digest "
                f"{rebuilt_digest[:12]}, the "
                f"log says {expected[:12]}.{self.exchanged(rebuilt_digest)}"
            )
        self.artifacts.put(expected, weights)
        return weights

    def exchanged(self, rebuilt_digest: str) -> str:
        """Return a sentence on the model that the log gives this digest to; '' if there is none."""
        built = self.state.built.items()
        other = next((id_ for id_, (digest, _) in built if digest == rebuilt_digest), None)
        if other is None:
            return ""
        name = f"{other[:12]} ({candidates.place(self.state, other)})"
        return f" {rebuilt_digest[:12]} is the digest that the log gives {name}."

    def weights(self, recipe_id: str) -> Weights:
        """Return the weights of a recipe. Raises ConfigError if the recipe was never built."""
        weights = self.weights_if_known(recipe_id)
        if weights is None:
            raise ConfigError(f"recipe {recipe_id[:12]} was never built")
        return weights


def _check_different(records: list[events.SourceRecord]) -> None:
    names_by_digest: dict[str, str] = {}
    for record in records:
        if record.digest in names_by_digest:
            raise SourceError(
                f"models {names_by_digest[record.digest]} and {record.name} hold the same "
                "weights. Every "
                "source must be another model."
            )
        names_by_digest[record.digest] = record.name


def follow(model: ResidentModel, config: EvoMergeConfig, started: Started | None) -> ResidentModel:
    """Return the model, set up by the run's profile or, before the run has one, by the settings."""
    if started is not None:
        profile = started.profile
        model.batch_tokens = None if config.batch_tokens is None else profile.batch_tokens
        model.dtype = getattr(torch, profile.evaluation) if profile.evaluation else None
        model.together, model.many_replies = started.together, started.many_replies
        shape = (model.rows(started.context), started.context)
        model.compiled = shape if profile.compiled else None
    elif config.batch_tokens != "probe" and config.evaluation_dtype not in ("auto", "probe"):
        model.batch_tokens = config.batch_tokens
        model.dtype = torch.bfloat16 if config.evaluation_dtype == "bfloat16" else None
    return model  # values that must be found out are set by `probe`


def probe(
    model: ResidentModel,
    config: EvoMergeConfig,
    sources: Sequence[Weights],
    data: Mapping[str, ItemPack],
    context: int,
) -> tuple[str, ...]:
    """Return a line on each thing probed, after setting up the model as the settings ask."""
    lines = []
    model.dtype = torch.bfloat16 if config.evaluation_dtype == "bfloat16" else None
    model.load(sources[0])
    if config.batch_tokens == "probe":
        speeds = autotune.batch(model, context, config.search_windows)
        model.batch_tokens = autotune.chosen(speeds)
        lines.append(
            f"probed: {model.batch_tokens} tokens a forward pass, "
            f"{speeds[model.batch_tokens]:,.0f} tokens/s (one window: {speeds[context]:,.0f})"
        )
    elif config.batch_tokens is not None:
        model.batch_tokens = config.batch_tokens
    if config.evaluation_dtype == "auto":
        model.dtype = torch.bfloat16 if autotune.natively(model, sources, data) else None
    elif config.evaluation_dtype == "probe":
        trial = autotune.halved(model, sources, data, context)
        model.dtype = torch.bfloat16 if trial.better else None
        lines.append(_probe_line("bfloat16 is", trial, trial.better))
    if config.evaluation_compile == "probe":
        lines.append(_compiled(model, config, sources, data, context))
    return tuple(lines)


def _compiled(
    model: ResidentModel,
    config: EvoMergeConfig,
    sources: Sequence[Weights],
    data: Mapping[str, ItemPack],
    context: int,
) -> str:
    """Return a line on compiled passes, which are used if they save time in the run's search."""
    if not inductor.compiler(model.device):
        return "not probed: this machine has no compiler for evaluation_compile: not used"
    try:
        trial = autotune.compiled(model, sources, data, context)
    except inductor.NotCompiledError as error:
        return f"not probed: {error}: not used"
    rows = model.rows(context)
    long = sum(any(len(w) == context for w in packed.windows) for packed in data.values())
    full = config.search_windows // rows * rows * context
    used = trial.pays(_search_tokens(config, long * full, trial.speed))
    model.compiled = (rows, context) if used else None
    return _probe_line(f"compiling takes {trial.seconds:.0f} s, and evaluation is", trial, used)


def _search_tokens(config: EvoMergeConfig, each: int, speed: float) -> float:
    """Return the most tokens of full batches that the search evaluates, `each` a candidate.

    `speed` is tokens a second; a run with a budget of hours has time for no more than that allows.
    """
    tokens = config.generations * config.search.population_size * each
    if config.budget_hours is None:
        return tokens
    return min(tokens, 3600 * config.budget_hours * speed)


def _probe_line(what: str, trial: autotune.Trial, used: bool) -> str:
    return (
        f"probed: {what} {trial.ratio:.2f} times as fast and changes the sources' perplexity "
        f"by at most {trial.change:.2%}: {'used' if used else 'not used'}"
    )
