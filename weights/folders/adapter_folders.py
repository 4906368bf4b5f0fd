"""Folders of LoRA adapters as peft writes them: their files, and the settings in adapter_config.json.

A folder with pickles is refused. Settings must leave W + scale · B A as it is: an unknown key, or a
value that gives the tensors another meaning, is refused by name. The keys and their defaults are those
of peft 0.21 (`LoraConfig`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent_forge.runs.errors import SourceError
from agent_forge.runs.system import bounded_files, patterns

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
#: Bytes of the largest adapter_config.json.
MOST_CONFIG = 4 << 20
#: Prefix of the names of an adapter's two files in a copy of BASE+ADAPTER.
BESIDE = "added_"


def parts(model: Path) -> tuple[Path, Path | None]:
    """Return (base, adapter), the folders of BASE+ADAPTER; (model, None) for any other model.

    A folder that exists under the whole text is no BASE+ADAPTER.
    """
    base, _, adapter = str(model).partition("+")
    if not base or not adapter or model.exists():
        return model, None
    return Path(base), Path(adapter)


def exists(model: Path) -> bool:
    """Return True if a model's folder exists; for BASE+ADAPTER, if both folders exist."""
    base, adapter = parts(model)
    return base.exists() and (adapter is None or adapter.exists())


def files(model: Path) -> dict[str, Path]:
    """Return name in a copy → path of the two files of a model's adapter; {} if it has no adapter.

    The model is BASE+ADAPTER or a copy of it. Raises SourceError.
    """
    _, adapter = parts(model)
    if adapter is None:
        return {
            file.name: file
            for name in (CONFIG, WEIGHTS)
            if (file := model / f"{BESIDE}{name}").is_file()
        }
    return {f"{BESIDE}{CONFIG}": adapter / CONFIG, f"{BESIDE}{WEIGHTS}": weights_file(adapter)}


def is_adapter(folder: Path) -> bool:
    """Return True if the folder has an adapter_config.json and no model*.safetensors file."""
    return (folder / CONFIG).is_file() and not any(folder.glob("model*.safetensors*"))


def base_of(folder: Path) -> str | None:
    """Return the base's name in an adapter's settings; None if it is missing or not printable."""
    try:
        base = bounded_files.read_object(folder / CONFIG, MOST_CONFIG).get("base_model_name_or_path")
    except SourceError:
        return None
    return base if isinstance(base, str) and base.isprintable() and 0 < len(base) < 1000 else None


def check_no_adapter(folder: Path) -> None:
    """Raise SourceError if a folder that stands for a model holds an adapter and no model weights."""
    if is_adapter(folder):
        raise SourceError(
            f"model {folder} is an adapter, not a model: write its base before it, "
            f"{base_of(folder) or 'BASE'}+{folder}."
        )


def weights_file(folder: Path) -> Path:
    """Return the path of an adapter's safetensors file. Raises SourceError if there is none."""
    file = folder / WEIGHTS
    if file.is_file():
        return file
    if (folder / PICKLED).is_file():
        raise SourceError(
            f"adapter {folder} has only pickled weights ({PICKLED}), which can run code when loaded. "
            "Convert them on a machine where you trust them:\n"
            '  python -c "from peft.utils import load_peft_weights as read; '
            f"from safetensors.torch import save_file; tensors = read({str(folder)!r}, device='cpu'); "
            f'save_file({{n: t.contiguous() for n, t in tensors.items()}}, {str(file)!r})"'
        )
    raise SourceError(f"adapter {folder} has no {WEIGHTS}: give the folder that peft saved.")


#: Patterns in one adapter_config.json, and the largest alpha.
MOST_PATTERNS, MOST_ALPHA = 10_000, 1e30
#: Keys that `Adapter` reads, or whose meaning is in the stored tensors.
READ = {
    "peft_type",
    "r",
    "lora_alpha",
    "rank_pattern",
    "alpha_pattern",
    "use_rslora",
    "lora_bias",
    "bias",
    "modules_to_save",
    "trainable_token_indices",
    "ensure_weight_tying",
    "fan_in_fan_out",
    "init_lora_weights",
}
#: Keys that do not matter for a merge: they are about the training, or about the adapter's origin.
HARMLESS = {
    "task_type",
    "auto_mapping",
    "peft_version",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "lora_dropout",
    "megatron_core",
    "qalora_group_size",
    "runtime_config",
    # Settings of one initialisation, without effect unless init_lora_weights names it.
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
}
#: Values of init_lora_weights that leave the base as it is.
PLAIN_BEGINNINGS = ("gaussian", "eva", "orthogonal", "mica")
_CONVERT = (
    "save it again where it was trained, with `save_pretrained(…, "
    "path_initial_model_for_weight_conversion=…)`"
)
_BY_PEFT = "merge it with peft (`merge_and_unload`) and give the result as a model"
#: Key that changes the meaning of the tensors → (its effect, the remedy).
OTHERWISE = {
    "use_dora": ("it scales the columns of the sum (DoRA)", _BY_PEFT),
    "target_parameters": ("it changes parameters that are packed together", _BY_PEFT),
    "use_bdlora": ("its matrices are stored in blocks (BD-LoRA)", _BY_PEFT),
    "kasa_config": ("it changes the base (KaSA)", _BY_PEFT),
    "use_qalora": ("its inputs are averaged in groups (QALoRA)", _BY_PEFT),
    "layer_replication": (
        "it is for a base whose layers are repeated",
        "make that base by slices of `passthrough`, take the key out and put the adapter on it",
    ),
    "alora_invocation_tokens": (
        "it is active behind certain tokens alone (aLoRA), which no weights can be",
        "train it without",
    ),
    "arrow_config": (
        "it chooses among adapters token by token (Arrow), which no weights can do",
        "give one of the adapters",
    ),
}


class AdapterConfig:
    """The settings of an adapter's folder, checked: the adapter can be added to weights exactly."""

    def __init__(self, folder: Path, file: Path | None = None) -> None:
        """Read and check the settings, from `file` or adapter_config.json. Raises SourceError."""
        self._folder, self._file = folder, file or folder / CONFIG
        try:
            self._settings = bounded_files.read_object(self._file, MOST_CONFIG)
        except SourceError as error:
            raise SourceError(f"{folder} is not a LoRA adapter: {error}") from error
        kind = str(self._settings.get("peft_type", "LORA"))
        if kind != "LORA":
            raise SourceError(f"adapter {folder} is {kind}: only LoRA adapters can be merged.")
        self._check_scales()
        self._check_keys()

    @property
    def tied(self) -> bool:
        """True if embedding and head of a tied model have the same change."""
        return bool(self._settings.get("ensure_weight_tying"))

    def scale(self, module: str, rank: int) -> float:
        """Return a module's α / rank, or α / √rank for rank-stabilised adapters.

        Source of the second form: Kalajdzievski 2023, arXiv 2312.03732.
        """
        alpha = self._settings.get("lora_alpha", rank)
        for pattern, value in (self._settings.get("alpha_pattern") or {}).items():
            if self._means(pattern, module):  # as peft does: the first that matches
                alpha = value
                break
        return alpha / (rank**0.5 if self._settings.get("use_rslora") else rank)

    def tokens(self, module: str, count: int) -> list[int]:
        """Return a list of the `count` token ids with rows stored for a module. Raises SourceError."""
        indices = self._settings.get("trainable_token_indices")
        if isinstance(indices, Mapping):
            indices = next((i for key, i in indices.items() if f".{module}".endswith(f".{key}")), None)
        tokens = indices if isinstance(indices, list) else []
        whole = all(type(token) is int and token >= 0 for token in tokens)
        if not whole or len(set(tokens)) != len(tokens) or len(tokens) != count:
            raise SourceError(
                f"{self._file}: trainable_token_indices does not name the {count} tokens of {module} "
                "whose rows are stored."
            )
        return tokens

    def _check_keys(self) -> None:
        """Raise SourceError, with the key, for a value that gives the tensors another meaning."""
        for key, value in self._settings.items():
            if key in OTHERWISE and value not in (None, False, [], {}):
                why, remedy = OTHERWISE[key]
                raise SourceError(
                    f"adapter {self._folder}: {key} is not supported: {why}. To use it, {remedy}."
                )
            if key not in {*READ, *HARMLESS} and value not in (None, False, [], {}):
                raise SourceError(
                    f"adapter {self._folder}: {key[:60]} is {_shown(value)}, a setting that is not "
                    f"known here and may give its tensors another meaning. To use it, {_BY_PEFT}; if "
                    f"it has no bearing on the weights, take it out of {CONFIG}."
                )
        start = self._settings.get("init_lora_weights", True)
        word = start.lower() if isinstance(start, str) else start
        if not isinstance(word, bool) and word is not None and word not in PLAIN_BEGINNINGS:
            raise SourceError(
                f"adapter {self._folder}: init_lora_weights is {_shown(start)}, which changed the base "
                "before the training: added to the base as it is, the adapter gives another model. "
                f"To use it, {_CONVERT}" + (f"; or {_BY_PEFT}." if word in ("pissa", "olora") else ".")
            )

    def _check_scales(self) -> None:
        """Raise SourceError if a scale is no finite number, or alpha_pattern is not usable.

        alpha_pattern must be a mapping with at most MOST_PATTERNS patterns.
        """
        by_pattern = self._settings.get("alpha_pattern") or {}
        if not isinstance(by_pattern, dict) or len(by_pattern) > MOST_PATTERNS:
            raise SourceError(
                f"{self._file}: alpha_pattern is a mapping of at most {MOST_PATTERNS:,} "
                "patterns to numbers."
            )
        scales = {"lora_alpha": self._settings.get("lora_alpha", 1)}
        scales |= {f"alpha_pattern {pattern[:60]!r}": value for pattern, value in by_pattern.items()}
        for name, value in scales.items():
            if type(value) not in (int, float) or not abs(value) < MOST_ALPHA:
                raise SourceError(f"{self._file}: {name} is {_shown(value)}, not a finite number.")

    def _means(self, pattern: str, module: str) -> bool:
        """Return True if a pattern matches a module's name, literally or as a regular expression.

        The rule is that of peft. Raises SourceError if the pattern cannot be matched.
        """
        if module == pattern or module.endswith(f".{pattern}"):
            return True
        try:
            return patterns.Matcher(rf"(?:.*\.)?(?:{pattern})").fullmatch(module)
        except ValueError as error:
            raise SourceError(
                f"{self._file}: alpha_pattern {pattern[:60]!r} is no regular expression that can be "
                f"matched ({error})."
            ) from error


def _shown(value: object) -> str:
    """Return a value's repr for a message, of at most 60 characters."""
    return repr(value)[:60]
