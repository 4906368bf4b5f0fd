"""Options of `forge merge` that say a merge without a config file, and which kind of merge is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import click

from cli.evomerge.adapters import numbers

#: Options that only a merge of models by a method has.
OF_MODELS = ("base", "data", "parameter")
Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
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


def method_options(command: Command) -> Command:
    """Return the command with the options of a merge without a config."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def merge_kind(
    paths: Sequence[str], words: Mapping[str, Any], of_models: bool
) -> Literal["adapters", "config", "method"]:
    """Return what is to be merged: adapters, models by a config, or models by a method.

    `words` are the values of these options and of those of adapters; `of_models` is True if another
    option was given that merges of adapters lack. Raises ConfigError for options of another kind of
    merge, and UsageError for a missing argument.
    """
    from runs.errors import ConfigError

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
        raise ConfigError(
            "--weights is an option of --method and --adapters: a config says its own."
        )
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
    """Return the config that options say, as YAML. Raises ConfigError."""
    import yaml

    from evomerge.mergekit.method_map import METHODS
    from runs.errors import ConfigError

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
    each: list[dict[str, Any]] = [{"weight": share} if weighted else {} for share in shares]
    parameters: dict[str, Any] = {}
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
    document: dict[str, Any] = {"merge_method": method}
    if base is not None:
        document["base_model"] = base
    document["models"] = [
        {"model": model, "parameters": own_settings}
        for model, own_settings in zip(models, each, strict=True)
    ]
    return yaml.safe_dump({**document, "parameters": parameters}, sort_keys=False)
