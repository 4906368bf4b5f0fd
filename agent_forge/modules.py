"""Functions that score, export and load models, by name or as loaded modules."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from agent_forge.evaluation.data.slices import Slice
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.home import Home
from agent_forge.weights.folders import model_card
from agent_forge.worker.exports import formats

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from agent_forge.evomerge.tasks.score import Score
    from agent_forge.weights.folders.vocabularies import Tokenizer

log = logging.getLogger(__name__)


@overload
def score(
    models: str | Path,
    data: Sequence[str | Path] = (),
    *,
    slice: Slice = "test",
    context: int = 512,
    device: str = "auto",
    endpoint: str | None = None,
    served: str | None = None,
    home: Home | str | Path | None = None,
) -> Score: ...


@overload
def score(
    models: Sequence[object],
    data: Sequence[str | Path] = (),
    *,
    slice: Slice = "test",
    context: int = 512,
    device: str = "auto",
    endpoint: str | None = None,
    served: str | None = None,
    home: Home | str | Path | None = None,
) -> list[Score]: ...


def score(
    models: str | Path | Sequence[object],
    data: Sequence[str | Path] = (),
    *,
    slice: Slice = "test",
    context: int = 512,
    device: str = "auto",
    endpoint: str | None = None,
    served: str | None = None,
    home: Home | str | Path | None = None,
) -> Score | list[Score]:
    """Measure models on a slice of data; return a `Score`, or a list of them for a list of models.

        code, math = forge.score(["models/code", "models/math"], data=["items"])
        print(code.components.bits_per_byte, math.components.bits_per_byte)

    A score's `components` has `perplexity`, `bits_per_byte` (comparable between tokenizers),
    `next_token_accuracy`, `choice_accuracy` and `solved`; `items` has every item with its value.
    Nothing is recorded.

    `data` are files and folders of items, or tasks; without any, the built-in domains. `slice` is
    train, search, selection or test. `context` is the length of a window in tokens. `endpoint` is the
    address of an OpenAI-compatible server, to be asked for the model that it calls `served`.
    `forge score` does the same. Raises ConfigError, DataError, SourceError, UnavailableError.
    """
    from agent_forge.evomerge.tasks import score as scoring

    at = Home.at(home)
    requested = models if isinstance(models, list | tuple) else [models]
    names = [named(at, model) for model in requested]
    if not names:
        raise ConfigError("there are no models to score: give one.")
    how = scoring.ScoreOptions(
        tuple(map(str, data)), slice, context, device, endpoint=endpoint, served=served
    )
    scores, _ = scoring.measure(at, names, how, log.info)
    return scores if requested is models else scores[0]


def export(
    model: object,
    out: str | Path,
    format: str = "folder",
    type: str | None = None,
    *,
    reason: str | None = None,
    ollama: bool = False,
    fallback: str | None = None,
    imatrix: Sequence[str | Path] = (),
    measure: Sequence[str | Path] = (),
    home: Home | str | Path | None = None,
) -> formats.Written:
    """Write a model as a folder, a GGUF file or another format; return the places and log lines.

        forge.export(best.run, "champion")
        forge.export("models/code", "code.gguf", "gguf", type="Q8_0")
        small = forge.run("compression", models={"model": "models/code"}, data=["items"])
        forge.export(small.run, "small")

    A folder has the result of a completed run with its report; `RUN:ROLE` is another model of the run.
    The run records it, with the `reason`. The folder of a compression has the coded file, here
    `small/model.forge`.

    `format` is folder, gguf (a file for llama.cpp), compressed-tensors (a folder for vLLM, of `type`
    int8 or int4), bitnet (a packed folder of a ternary model) or adapter. All but folder and adapter
    take any name of a model, or a loaded module. Of a GGUF file `type` is F32, F16 (the default), Q8_0,
    Q4_K_M, …, several with commas; `imatrix` is text that tells which inputs of a matrix matter,
    `measure` is text to measure the file on, and `ollama` writes a Modelfile beside it. `forge export`
    does the same. Raises ConfigError, ConflictError, NotFoundError, SourceError, UnavailableError.
    """
    at = Home.at(home)
    gguf = formats.Gguf(fallback, ollama, tuple(map(str, imatrix)), None, tuple(map(str, measure)))
    options = formats.ExportOptions(type, gguf, reason)
    return formats.write(at, named(at, model), Path(out), format, options, log.info)


def load(
    model: str | Path, dtype: torch.dtype | None = None, home: Home | str | Path | None = None
) -> PreTrainedModel:
    """Return a transformers model, by any name that commands take or from a coded file.

        model = forge.load(best["champion"])
        small_model = forge.load("small/model.forge")

    A name is a folder, a GGUF file, a model of a run (`RUN`, `RUN:ROLE`), a registered name,
    BASE+ADAPTER or a Hub id ([all of them](settings.md#names-of-models)). `dtype` is a torch dtype for
    all weights; by default the model's own. The model is on the CPU and in evaluation mode. Python code
    in its folder is not run. Raises SourceError, UnavailableError.
    """
    if _is_coded(model):
        from agent_forge.weights.formats import decompression

        return decompression.load_model(Path(model), dtype)
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM

    folder = _folder(model, home)
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False, dtype=dtype or "auto")


def load_tokenizer(
    model: str | Path, home: Home | str | Path | None = None
) -> Tokenizer | PreTrainedTokenizerBase:
    """Return a model's tokenizer as an object of transformers, by the same names as `load`.

        tokenizer = forge.load_tokenizer("models/base")
        print(tokenizer("def add(a, b):").input_ids)
        coded_tokenizer = forge.load_tokenizer("small/model.forge")

    Raises SourceError, UnavailableError.
    """
    if _is_coded(model):
        from agent_forge.weights.formats import decompression

        return decompression.load_tokenizer(Path(model))
    from agent_forge.evaluation.loading import load_tokenizer

    return load_tokenizer(_folder(model, home))


def _is_coded(model: str | Path) -> bool:
    return str(model).endswith(model_card.CODED) and Path(model).is_file()


def _folder(model: str | Path, home: Home | str | Path | None) -> str:
    """Return the path of a model's folder, made if missing. Raises SourceError, UnavailableError."""
    from agent_forge.weights.folders.sources import resolve
    from agent_forge.weights.storage.model_origin import Finder

    return resolve(str(model), named=Finder(Home.at(home), log.info)).path


def named(home: Home, model: Any) -> str:
    """Return the path or name of a model; a loaded module is first written into the home folder.

    A module's tokenizer is that of its `config.name_or_path`. Raises ConfigError if the config has no
    such path, NotFoundError if there is no tokenizer.
    """
    if isinstance(model, str | Path):
        return str(model)
    from agent_forge.weights.folders.checkpoint import digest, publish

    weights = {name: p.detach().cpu() for name, p in model.named_parameters()}
    folder = home.folder / "models" / digest(weights)
    if not folder.exists():
        publish(folder, lambda place: _save(model, weights, place))
    return str(folder)


def handed(over: Mapping[str, object], name: str) -> Any:
    """Return the value of `name` in a phase's hand-over. Raises ConfigError if it is missing."""
    if name not in over:
        raise ConfigError(
            f"what is handed over has no {name!r}; it has {', '.join(over) or 'nothing'}."
        )
    return over[name]


def _save(module: Any, weights: dict[str, Any], folder: Path) -> None:
    """Write weights and config into `folder`, and the tokenizer of the module's `name_or_path`.

    Raises ConfigError if that path is not known, NotFoundError if it has no tokenizer.
    """
    from agent_forge.weights.architectures.auto_config import AutoTokenizer
    from agent_forge.weights.folders.checkpoint import SHARD_BYTES, write_weights

    write_weights(folder, weights, SHARD_BYTES)
    module.config.save_pretrained(folder)
    origin = getattr(module.config, "_name_or_path", "")
    if not origin:
        raise ConfigError(
            "a loaded module must come from a folder or the Hub (from_pretrained), so that its "
            "tokenizer is known: save it with its tokenizer and give the folder instead."
        )
    try:
        AutoTokenizer.from_pretrained(origin, trust_remote_code=False).save_pretrained(folder)
    except (OSError, ValueError) as error:
        raise NotFoundError(f"no tokenizer beside the loaded module ({origin}): {error}") from error
