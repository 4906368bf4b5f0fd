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


def check_no_adapter(folder: Path) -> None:
    """Raise SourceError if a folder that stands for a model holds an adapter and no model."""
    if not (folder / CONFIG).is_file() or any(folder.glob("model*.safetensors*")):
        return
    try:
        base = bounded_files.read_object(folder / CONFIG, MOST_CONFIG).get(
            "base_model_name_or_path"
        )
    except SourceError:
        base = None
    named = isinstance(base, str) and base.isprintable() and 0 < len(base) < 1000
    meant = f"{base if named else 'BASE'}+{folder}"
    raise SourceError(
        f"model {folder} is an adapter, not a model. In a config of `forge merge` write "
        f"{'it behind its base' if named else 'BASE+ADAPTER'}: {meant}. All other commands take whole "
        "models: merge the adapter first:\n"
        f"  echo '{merge_config(meant)}' > whole.yml\n"
        f"  forge merge whole.yml {folder.name}-merged"
    )


def merge_config(model: str) -> str:
    """Return the config of a merge that makes a whole model of BASE+ADAPTER."""
    return f'{{merge_method: passthrough, models: [{{model: "{model}"}}]}}'


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
