"""`forge merge`: merges models into a new model, by a config file or by options."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from agent_forge.cli.options import Json, device_option, emit, json_option, together

if TYPE_CHECKING:
    from agent_forge.evomerge.mergekit.parser import MergeSpec
    from agent_forge.weights.storage.model_origin import Finder


from agent_forge.cli.options import split
from agent_forge.weights.adapters.choices import COMBINATIONS, Combination

#: Options that only a merge of models by a method has.
OF_MODELS = ("base", "data", "parameter")

#: Options of a merge without a config.
method_options = together(
    click.option(
        "--method",
        metavar="NAME",
        help="Merge MODELS by a method (linear, regmean, tsv_m, …) without a config. With --adapters: "
        "a combination of peft's add_weighted_adapter.  [default: svd]",
    ),
    click.option(
        "--weights",
        metavar="W,W,…",
        help="With --method or --adapters: a weight for each.  [default: 1]",
    ),
    click.option(
        "--base", metavar="MODEL", help="With --method: the base_model, for methods that read one."
    ),
    click.option(
        "--data",
        multiple=True,
        metavar="DATA",
        help="With --method regmean or regmean++: text, one for all models or one for each, in their "
        "order.  [default: builtin:domains]",
    ),
    click.option(
        "--parameter",
        multiple=True,
        metavar="KEY=VALUE",
        help="With --method: a parameter, such as density=0.5 or alpha=0.9.",
    ),
)


def merge_kind(
    paths: Sequence[str], words: Mapping[str, object], of_models: bool
) -> Literal["adapters", "config", "method"]:
    """Return which kind of merge is asked for: "adapters", "config" or "method".

    `words` are the values of these options and of those of adapters; `of_models` is True if another
    option was given that merges of adapters lack. Raises ConfigError for options of another kind of
    merge, and UsageError for a missing argument.
    """
    from agent_forge.runs.errors import ConfigError

    method, weights = words["method"], words["weights"]
    of_method = [name for name in OF_MODELS if words[name]]
    of_adapters = set(words) - {"method", "weights", *OF_MODELS}
    if words["adapters"] is not None:
        if len(paths) > 1 or of_models or of_method:
            raise ConfigError(
                "with --adapters leave out CONFIG, --device, --threads, --check, --model, --dry-run, "
                "--strict, --base, --data and --parameter."
            )
        if not paths:
            raise click.UsageError("Missing argument 'OUT'.")
        return "adapters"
    if weights is not None and method is None:
        raise ConfigError("--weights is an option of --method and --adapters: a config says its own.")
    if wrong := sorted(name for name in of_adapters if words[name] is not None):
        raise ConfigError(
            f"--{wrong[0]} is an option of --adapters: a config says its own, and with --method it is "
            f"--parameter {wrong[0]}=…."
        )
    if method is not None:
        if len(paths) < 2:
            raise click.UsageError("Missing argument 'OUT': give models, then the folder to write.")
        return "method"
    if of_method:
        raise ConfigError(f"--{of_method[0]} is an option of --method: a config says its own.")
    for place, name in enumerate(("CONFIG", "OUT")):
        if len(paths) <= place:
            raise click.UsageError(f"Missing argument '{name}'.")
    if len(paths) > 2:
        raise click.UsageError(
            f"CONFIG and OUT, not {len(paths)} arguments. To merge models without a config say the "
            "method: --method linear."
        )
    return "config"


def config_text(
    method: str,
    models: Sequence[str],
    weights: str | None,
    base: str | None,
    data: Sequence[str],
    parameter: Sequence[str],
) -> str:
    """Return the config that the options stand for, as YAML text. Raises ConfigError."""
    import yaml

    from agent_forge.evomerge.mergekit.method_map import METHODS
    from agent_forge.runs.errors import ConfigError

    shares = numbers(weights) or [1.0] * len(models)
    for option, values in (("weights", shares), ("data", data)):
        if len(values) not in ((0, 1) if option == "data" else ()) + (len(models),):
            alternative = " one for all models, or" if option == "data" else ""
            raise ConfigError(
                f"{len(values)} --{option} for {len(models)} models: give{alternative} one for each, "
                "in their order."
            )
    names = METHODS[method.lower()].known if method.lower() in METHODS else ()
    weighted = weights is not None or "weight" in names
    each: list[dict[str, object]] = [{"weight": share} if weighted else {} for share in shares]
    parameters: dict[str, object] = {}
    for word in parameter:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"--parameter {word}: give KEY=VALUE.")
        try:
            parameters[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--parameter {word}: the value is not YAML.") from error
    if len(data) == len(models):
        for settings, path in zip(each, data, strict=True):
            settings["data"] = path
    elif data:
        parameters["data"] = data[0]
    document: dict[str, object] = {"merge_method": method}
    if base is not None:
        document["base_model"] = base
    document["models"] = [
        {"model": model, "parameters": own_settings}
        for model, own_settings in zip(models, each, strict=True)
    ]
    return yaml.safe_dump({**document, "parameters": parameters}, sort_keys=False)


#: Options of a merge of adapters.
adapter_options = together(
    click.option(
        "--adapters",
        metavar="A,B,…",
        help="Merge LoRA adapters of one base, folders or Hub ids, into an adapter; give OUT, and no "
        "CONFIG.",
    ),
    click.option(
        "--density", type=float, help="With --adapters: the share of the numbers that is kept."
    ),
    click.option(
        "--rank",
        type=click.IntRange(1),
        help="With --adapters: the rank of svd.  [default: the largest of the adapters]",
    ),
    click.option(
        "--sign",
        type=click.Choice(["total", "frequency"]),
        help="With --adapters: ties elects signs by the sum of values, or of signs.  [default: total]",
    ),
)


@click.command("merge")
@click.argument("paths", type=click.Path(), nargs=-1, metavar="[CONFIG|MODELS…] OUT")
@method_options
@adapter_options
@device_option
@click.option("--threads", type=click.IntRange(1), help="Threads; every core by default.")
@click.option("--seed", default=0, show_default=True, help="The seed of random masks.")
@click.option(
    "--shard-size", default="2GB", show_default=True, help="The largest file, as 500MB or 2GB."
)
@click.option("--check", is_flag=True, help="Load the result with transformers and generate a token.")
@click.option(
    "--model",
    multiple=True,
    metavar="NAME=MODEL",
    help="A recipe file's source: a folder, RUN:ROLE and so on.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, write nothing.")
@click.option("--strict", is_flag=True, help="Refuse what would be a warning.")
@json_option
def merge_command(
    paths: tuple[str, ...],
    device: str,
    threads: int | None,
    seed: int,
    shard_size: str,
    check: bool,
    model: tuple[str, ...],
    dry_run: bool,
    strict: bool,
    as_json: bool,
    **words: Any,
) -> None:
    """Merge models as a config says: mergekit's YAML, or the recipe file of a champion.

    With --method the options say it all, and MODELS stand before OUT. A merge that was interrupted
    goes on where it was when the same command is given again. Of a file with several documents each
    is written to OUT/<its name>, and may use earlier ones by name.

    \b
    Example:
      forge merge ties.yml merged
      forge merge --method regmean++ --data code.jsonl --data math.jsonl code math both
      forge merge --adapters code,math --weights 0.7,0.3 --method ties --density 0.5 both
    """
    from agent_forge.runs.errors import ConfigError
    from agent_forge.weights.devices import check_device, resolve

    of_models = any((check, dry_run, strict, model, threads, device != "auto"))
    kind = merge_kind(paths, words, of_models)
    out = Path(paths[-1])
    if kind == "adapters":
        merge_adapters(out, seed, as_json, **{n: words[n] for n in words if n not in OF_MODELS})
        return
    size = shard_bytes(shard_size)
    check_device(device)
    if kind == "config" and _is_recipe_file(Path(paths[0])):
        if strict or seed or device != "auto" or threads:
            raise ConfigError(
                "leave --seed, --device, --threads and --strict out: a recipe file says it all."
            )
        _rebuilt(Path(paths[0]), out, model, size, dry_run, as_json)
        _check(out, check)
        return
    if model:
        raise ConfigError("--model says where a recipe file's sources are; a config names its own.")
    options = {"seed": seed, "device": resolve(device), "threads": threads, "shard_bytes": size}
    merges = _merged(_documents(paths, words), out, options, check, dry_run, strict, as_json)
    if as_json:
        emit({"merges": merges})


def _documents(paths: tuple[str, ...], words: Json) -> list[MergeSpec]:
    """Return a list of the merges of a config file, or of the single one that the options stand for."""
    from agent_forge.evomerge.tasks import merge

    if (method := words["method"]) is None:
        return merge.read(Path(paths[0]))
    of_models = {name: words[name] for name in OF_MODELS}
    text = config_text(method, paths[:-1], words["weights"], **of_models)
    return merge.parse(text, f"the config that --method {method} stands for")


def _check(out: Path, must_load: bool) -> None:
    """Load the written model with transformers if `must_load`; raise an error if that fails."""
    if must_load:
        from agent_forge.evomerge.tasks.results.champion import check_loads

        check_loads(out)


def _say_if_new(quiet: bool) -> None:
    from agent_forge.evomerge.merging.kernels.numba import compiler

    if compiler.is_new() and not quiet:
        click.echo("compiling the loops, once on this machine: some ten seconds", err=True)


def _is_recipe_file(config: Path) -> bool:
    """Return True for a .json file without `merge_method`, a recipe file, or one that is unreadable."""
    from agent_forge.runs.errors import ConfigError
    from agent_forge.runs.system import bounded_files

    if config.suffix.lower() != ".json":
        return False
    try:
        document = bounded_files.read_json(config, error=ConfigError)
    except ConfigError:
        return True  # the error is that of a recipe file
    return not isinstance(document, dict) or "merge_method" not in document


def _merged(
    documents: list[MergeSpec],
    out: Path,
    options: Json,
    check: bool,
    dry_run: bool,
    strict: bool,
    quiet: bool,
) -> list[dict[str, object]]:
    """Merge each document, or check it with `dry_run`; return dicts: name, folder, digest if merged."""
    from agent_forge.evomerge.tasks import merge

    named = _names()
    folders: dict[str, Path] = {}
    entries = []
    for document, place in zip(documents, merge.outputs(documents, out), strict=True):
        earlier = sorted({r.model for r in document.references()} & set(folders))
        if dry_run and earlier:
            entries.append({"name": document.name, "folder": str(place), "needs": earlier})
            if not quiet:
                click.echo(f"{place}: builds on {', '.join(earlier)}, so not looked at yet")
            folders[str(document.name)] = place
            continue
        prepared = merge.prepare(document, place, folders, named, _tell)
        _warn(prepared.warnings, strict)
        entry: dict[str, object] = {"name": document.name, "folder": str(place)}
        if dry_run:
            entry["tensors"] = len(prepared.layout.outputs)
            line = f"{entry['tensors']} tensors from {len(prepared.models)} models; fine"
        else:
            _say_if_new(quiet)
            show = _Progress()
            entry["digest"] = merge.run(prepared, **options, progress=show)
            show.end()
            line = f"weights digest {entry['digest']}"
            _check(prepared.out, check)
        folders[str(document.name)] = prepared.out
        entries.append(entry)
        if not quiet:
            click.echo(f"{place}: {line}")
    return entries


def _rebuilt(
    file: Path, out: Path, model: tuple[str, ...], size: int, dry_run: bool, as_json: bool
) -> None:
    """Rebuild a recipe file's candidate and print its digest. Raises ConfigError with `dry_run`."""
    from agent_forge.evomerge.tasks.results.verify import rebuild_folder
    from agent_forge.runs.errors import ConfigError

    if dry_run:
        raise ConfigError("--dry-run is for configs: a recipe file is checked by building it.")
    if wrong := [word for word in model if "=" not in word]:
        raise ConfigError(f"--model {wrong[0]}: give NAME=MODEL.")
    digest = rebuild_folder(file, out, dict(word.split("=", 1) for word in model), size, _names())
    if as_json:
        emit({"merges": [{"name": None, "folder": str(out), "digest": digest}]})
    else:
        click.echo(f"{out}: weights digest {digest}, as the recipe says")


def _names() -> Finder:
    """Return a finder of models in the log, which prints a line for each that it finds."""
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.model_origin import Finder

    return Finder(Home.default(), _tell)


def shard_bytes(text: str) -> int:
    """Return the number of bytes of a size such as "500MB". Raises ConfigError, also under 1 kB."""
    from agent_forge.runs.errors import ConfigError

    units = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
    word = text.strip().lower()
    number, unit = word[:-2], word[-2:]
    try:
        size = int(float(number) * units[unit])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size < 1_000:
        raise ConfigError(f"--shard-size {text!r} is no size: give a number with KB, MB or GB, as 2GB.")
    return size


def _tell(words: str) -> None:
    click.echo(words, err=True)


def _warn(warnings: list[str], strict: bool) -> None:
    from agent_forge.runs.errors import ConfigError

    if strict and warnings:
        raise ConfigError("--strict refuses what would be warnings:\n" + "\n".join(warnings))
    for warning in dict.fromkeys(warnings):  # several models may come from one file
        click.echo(f"warning: {warning}", err=True)


class _Progress:
    """One line on stderr, on a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()

    def __call__(self, document: object, done: int, all_: int, name: str) -> None:
        if self._terminal:
            print(f"\r\x1b[K{done}/{all_} {name}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def numbers(weights: str | None) -> list[float]:
    """Return the numbers of --weights, an empty list without the option. Raises ConfigError."""
    from agent_forge.runs.errors import ConfigError

    try:
        return [float(word) for word in split(weights)] if weights else []
    except ValueError as error:
        raise ConfigError(f"--weights {weights!r}: give numbers with commas between.") from error


def merge_adapters(
    out: Path,
    seed: int,
    as_json: bool,
    adapters: str,
    weights: str | None,
    method: str | None,
    density: float | None,
    rank: int | None,
    sign: str | None,
) -> None:
    """Merge adapters into an adapter at `out`, and print the result. Raises ConfigError."""
    from agent_forge.runs.errors import ConfigError
    from agent_forge.weights.adapters import merging
    from agent_forge.weights.folders.sources import resolve_adapter

    models = split(adapters)
    shares = numbers(weights) or [1.0] * len(models)
    if method is not None and method not in COMBINATIONS:
        raise ConfigError(
            f"--method {method} merges no adapters. Take one of {', '.join(COMBINATIONS)}."
        )
    how = Combination(method or "svd", density, rank, sign or "total", seed)
    record = merging.merge([Path(resolve_adapter(model).path) for model in models], shares, how, out)
    if as_json:
        emit(record)
        return
    for note in record["notes"]:
        click.echo(f"warning: {note}", err=True)
    click.echo(f"adapter:  {record['folder']} (rank {record['rank']}, {record['modules']} layers)")
