"""Evaluation of models without a run, by the code that runs use, for `forge score` and Python."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_forge.evaluation.autotune import SpeedComparison, paired
from agent_forge.evaluation.backends.backend import Evaluator
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.backends.openai_backend import Endpoint
from agent_forge.evaluation.data import domains, outcomes
from agent_forge.evaluation.data import items as itemdata
from agent_forge.evaluation.data.items import Item
from agent_forge.evaluation.data.outcomes import DomainOutcomes, Outcomes
from agent_forge.evaluation.data.packing import ItemPack, pack
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.evaluate import Judge, Metered, evaluate, measurable, why_not_run
from agent_forge.evaluation.loading import load_items, load_tokenizer
from agent_forge.evomerge.data_settings import given
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Components, Weighting
from agent_forge.evomerge.fitness.paired_bootstrap import ItemResult as Scored
from agent_forge.evomerge.fitness.paired_bootstrap import Kind, itemise
from agent_forge.evomerge.merging.builder import not_finite
from agent_forge.evomerge.run.events import ModelReference
from agent_forge.runs.errors import ConfigError, DataError, NotFiniteError
from agent_forge.runs.home import Home
from agent_forge.weights.cost import Cost, cost
from agent_forge.weights.devices import check_device
from agent_forge.weights.devices import resolve as device_of
from agent_forge.weights.folders import checkpoint, gguf_note, model_config, sources
from agent_forge.weights.storage.model_origin import Finder
from agent_forge.weights.threads import set_threads


@dataclass(frozen=True)
class Score:
    """The result of a model on a slice of the data."""

    name: str
    slice: Slice
    components: Components
    outcomes: Outcomes
    items: list[Scored]
    #: Domain → kind → grade → (right, asked), of questions and problems.
    grades: dict[str, dict[Kind, dict[int, tuple[float, int]]]]
    context: int
    #: Messages about items that were left out.
    left_out: tuple[str, ...]
    seconds: float


def score(
    model: ModelReference,
    items: Sequence[Item],
    slice_: Slice,
    evaluator: Evaluator,
    context: int = 512,
    builtin: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Score:
    """Return one model's `Score` on a whole slice; if `builtin`, without items that do not fit.

    `evaluator` has the model's weights. Raises DataError, EndpointError, NotFiniteError.
    """
    began = time.perf_counter()
    context = min(context, evaluator.positions or context)
    judge = Judge(load_tokenizer(model.path))
    slice_items = [item for item in items if item.slice == slice_]
    if not any(isinstance(item, itemdata.Text) for item in slice_items):
        raise DataError(f"the data has no text in the slice {slice_}: there is no perplexity of it.")
    not_run = why_not_run(slice_items, judge.verifier)
    fitting_items, left_out = measurable(slice_items, judge.tokenizer, context, builtin, not_run)
    data = pack(fitting_items, judge.tokenizer, context)[slice_]
    tell(f"scoring {model.name} on {len(fitting_items)} items of the {slice_} slice")
    draws = outcomes.whole({domain: packed.pool() for domain, packed in data.items()})
    if isinstance(evaluator, ResidentModel):
        evaluator = Metered(evaluator, data, judge.tokenizer, tell)
    model_outcomes = evaluate(evaluator, data, draws, judge).outcomes
    price = _price(model, context)
    measured = composite.components(model_outcomes, price.flops_per_token, price.bytes)
    if measured is None:
        raise NotFiniteError(f"model {model.name}: its log-likelihood on this data is NaN or Inf.")
    return Score(
        name=model.name,
        slice=slice_,
        components=measured,
        outcomes=model_outcomes,
        items=itemise(model_outcomes, draws, names(data)),
        grades={
            domain: _grades(data[domain], model_outcomes[domain]) for domain in sorted(model_outcomes)
        },
        context=context,
        left_out=left_out,
        seconds=time.perf_counter() - began,
    )


def resident(model: ModelReference, device: str = "cpu") -> ResidentModel:
    """Return the model's `ResidentModel`, weights loaded. Raises SourceError, NotFiniteError."""
    opened = checkpoint.open_checkpoint(Path(model.path))
    weights = opened.tensors()
    if bad := not_finite(weights):
        raise NotFiniteError(f"model {model.name}: tensor {bad} holds NaN or Inf.")
    resident_model = ResidentModel(Path(model.path), device, opened.tied)
    resident_model.load(weights)
    return resident_model


def speeds(
    models: Sequence[ResidentModel], context: int, tell: Callable[[str], None]
) -> list[SpeedComparison]:
    """Return a `SpeedComparison` for each loaded model: speed and memory, measured in turns."""
    tell("measuring speed and memory, in turns")
    return paired(models, context)


def served(model: ModelReference, url: str, name: str | None) -> Endpoint:
    """Return an evaluator (`Endpoint`) of the model that a server has under `name`, or its own name.

    The model's folder gives the number of positions. Raises SourceError, EndpointError.
    """
    positions = checkpoint.open_checkpoint(Path(model.path)).positions
    return Endpoint(url, name or model.name, positions, os.environ.get("FORGE_ENDPOINT_KEY"))


def _price(model: ModelReference, context: int) -> Cost:
    """Return the model's cost (operations, bytes), computed from its tensors' shapes."""
    weights = checkpoint.open_checkpoint(Path(model.path)).tensors()
    shapes = {name: tuple(t.shape) for name, t in weights.items()}
    width = next(iter(weights.values())).element_size()
    return cost(shapes, width, model_config.load(Path(model.path)), context)


def names(data: Mapping[str, ItemPack]) -> dict[str, dict[Kind, list[str]]]:
    """Return {domain: {kind: names of the items}} of a slice.

    Questions and problems have their ids; a window has its number, its first and its last text.
    """
    return {
        domain: {
            "window": [
                f"{n}: {first}" + (f" … {last}" if last != first else "")
                for n, (first, last) in enumerate(packed.texts)
            ],
            "question": [question.id for question in packed.questions],
            "problem": [posed.problem.id for posed in packed.problems],
        }
        for domain, packed in data.items()
    }


def _grades(packed: ItemPack, outcome: DomainOutcomes) -> dict[Kind, dict[int, tuple[float, int]]]:
    grades_by_kind: dict[Kind, dict[int, tuple[float, int]]] = {}
    kinds: list[tuple[Kind, list[int], Sequence[float]]] = [
        ("question", [q.grade for q in packed.questions], outcome.right),
        ("problem", [p.problem.grade for p in packed.problems], outcome.solved),
    ]
    for kind, grades, values in kinds:
        for grade, value in zip(grades, values, strict=True):
            right, count = grades_by_kind.setdefault(kind, {}).get(grade, (0.0, 0))
            grades_by_kind[kind][grade] = (right + value, count + 1)
    return grades_by_kind


@dataclass(frozen=True)
class ScoreOptions:
    """Options of `forge score`: the data, the slice, the device, or a server."""

    #: Files and folders of items, or tasks; empty: the four built-in domains.
    data: tuple[str, ...] = ()
    slice_: Slice = "test"
    #: Tokens of a window; the model's own limit if that is smaller.
    context: int = 512
    device: str = "auto"
    #: Measure speed and memory, too.
    speed: bool = False
    #: The address of a server that holds the model, and its name there.
    endpoint: str | None = None
    served: str | None = None


def check(models: Sequence[str], how: ScoreOptions) -> None:
    """Raise ConfigError for options that do not go together, UnavailableError for the device."""
    check_device(how.device)
    if how.endpoint == "":
        raise ConfigError("--endpoint is empty: give the server's address.")
    if how.endpoint is None and how.served is not None:
        raise ConfigError("--served is the name at a server: give its --endpoint too.")
    if how.endpoint is not None and len(models) > 1:
        raise ConfigError("an endpoint holds one model: give one.")
    if how.endpoint is not None and how.speed:
        raise ConfigError("--speed measures models on this machine: leave out --endpoint.")


def measure(
    home: Home, models: Sequence[str], how: ScoreOptions, tell: Callable[[str], None]
) -> tuple[list[Score], list[SpeedComparison]]:
    """Return (scores, speeds) of models in their order; speeds are empty unless asked for.

    Models are named as every command takes them. Raises ConfigError, DataError, EndpointError,
    NotFiniteError, SourceError, UnavailableError.
    """
    check(models, how)
    references = _references(home, models, tell)
    data = given(how.data or (domains.NAME,), Weighting())
    notes: list[str] = []
    items = load_items(data, allow_benchmarks=True, note=notes.append, needed=(how.slice_,))
    for note in notes:
        tell(f"warning: {note}")
    builtin = data == (domains.NAME,)
    set_threads()
    scores: list[Score] = []
    residents: list[ResidentModel] = []
    for model in references:
        if how.endpoint is not None:
            evaluator = served(model, how.endpoint, how.served)
        else:
            evaluator = resident(model, device_of(how.device))
            residents += [evaluator] if how.speed else []
        scores.append(score(model, items, how.slice_, evaluator, how.context, builtin, tell))
    context = min(each.context for each in scores)
    return scores, speeds(residents, context, tell) if residents else []


def _references(home: Home, models: Sequence[str], tell: Callable[[str], None]) -> list[ModelReference]:
    """Return the references of models named as folders, Hub ids, runs or registered models."""
    named = Finder(home, tell)
    references = [sources.resolve(model, named=named) for model in models]
    for reference in references:
        for words in gguf_note.warnings(Path(reference.path)):
            tell(f"warning: {words}")
    return references
