"""Folders of LoRA adapters, as peft writes them: which is no model, and which holds pickles."""

from __future__ import annotations

from pathlib import Path

from runs.errors import SourceError
from runs.system import bounded_files

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
#: Bytes of the largest adapter_config.json.
MOST_CONFIG = 4 << 20
#: What stands before the names of both files in a copy of BASE+ADAPTER, beside those of the base.
BESIDE = "added_"


def parts(model: Path) -> tuple[Path, Path | None]:
    """Return the folders of base and adapter of BASE+ADAPTER; any other model and None.

    A folder that exists under the whole text is meant before an adapter.
    """
    base, _, adapter = str(model).partition("+")
    if not base or not adapter or model.exists():
        return model, None
    return Path(base), Path(adapter)


def exists(model: Path) -> bool:
    """Return True if a model's folder is there; of BASE+ADAPTER both."""
    base, adapter = parts(model)
    return base.exists() and (adapter is None or adapter.exists())


def files(model: Path) -> dict[str, Path]:
    """Return the files of the adapter of BASE+ADAPTER, or of a copy of it: name in a copy → file.

    Empty for a model without an adapter. Raises SourceError.
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
    """Return True if a folder holds an adapter and no model."""
    return (folder / CONFIG).is_file() and not any(folder.glob("model*.safetensors*"))


def base_of(folder: Path) -> str | None:
    """Return the base that an adapter's settings name; None without a name that can be printed."""
    try:
        base = bounded_files.read_object(folder / CONFIG, MOST_CONFIG).get(
            "base_model_name_or_path"
        )
    except SourceError:
        return None
    return base if isinstance(base, str) and base.isprintable() and 0 < len(base) < 1000 else None


def check_no_adapter(folder: Path) -> None:
    """Raise SourceError if a folder that stands for a model holds an adapter and no model."""
    if is_adapter(folder):
        raise SourceError(
            f"model {folder} is an adapter, not a model: write its base before it, "
            f"{base_of(folder) or 'BASE'}+{folder}."
        )


def weights_file(folder: Path) -> Path:
    """Return the safetensors file of an adapter's folder. Raise SourceError if there is none."""
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
