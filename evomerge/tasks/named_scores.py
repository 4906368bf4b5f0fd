"""Scores of models by their names: what `forge score` and `agent_forge.score` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.backends.local_backend import ResidentModel
from evaluation.data import domains
from evaluation.data.slices import Slice
from evaluation.loading import load_items
from evaluation.speed import Beside
from evomerge.data_settings import given
from evomerge.fitness.composite import Weighting
from evomerge.tasks import score
from evomerge.tasks.score import Score
from runs.errors import ConfigError
from runs.event_types import ModelReference
from runs.home import Home
from weights.devices import check_device, resolve
from weights.folders import gguf_note, sources
from weights.storage.model_origin import Finder
from weights.threads import set_threads


@dataclass(frozen=True)
class Measurement:
    """What models are measured on, and how; the fields are the options of `forge score`."""

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


def check(models: Sequence[str], how: Measurement) -> None:
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
    home: Home, models: Sequence[str], how: Measurement, tell: Callable[[str], None]
) -> tuple[list[Score], list[Beside]]:
    """Measure models, named as every command takes them; return scores and speeds, in their order.

    Speeds are empty unless they are asked for. Raises ConfigError, DataError, EndpointError,
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
            evaluator = score.served(model, how.endpoint, how.served)
        else:
            evaluator = score.resident(model, resolve(how.device))
            residents += [evaluator] if how.speed else []
        scores.append(score.score(model, items, how.slice_, evaluator, how.context, builtin, tell))
    context = min(each.context for each in scores)
    return scores, score.speeds(residents, context, tell) if residents else []


def _references(
    home: Home, models: Sequence[str], tell: Callable[[str], None]
) -> list[ModelReference]:
    """Return the models: folders, Hub ids, runs, registered models."""
    named = Finder(home, tell)
    references = [sources.resolve(model, named=named) for model in models]
    for reference in references:
        for words in gguf_note.warnings(Path(reference.path)):
            tell(f"warning: {words}")
    return references
