"""Companions: the files of a model folder that belong to the model and are not weights.

config.json, tokenizer, chat template and generation settings decide, like the weights, what a model
computes and says. A run pins their digests; results take them from the pinned copy. Files with other
names (cards, logs, code) belong to the folder, not to the model, and are never copied. The code of our
architectures comes from the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import blake3

from agent_forge.events import canonical_json
from agent_forge.runs.errors import SourceError
from agent_forge.runs.system import bounded_files
from agent_forge.weights import architectures
from agent_forge.weights.folders import adapter_folders

CONFIG = "config.json"
#: Files of tokenizer, generation and processors of images, video and sound.
COMPANIONS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
#: Folders of a model that runs do not copy, and `forge merge` does.
FOLDERS = ("additional_chat_templates",)
#: Keys that name Python code of a repository; loaders run it with `trust_remote_code`.
CODE = ("auto_map", "custom_pipelines", "custom_generate")


def found(folder: Path) -> dict[str, Path]:
    """Return name → path, links resolved, of the companions in a folder, config.json first.

    Raises SourceError for a link that leaves the folder, or a file over `bounded_files.MOST_BYTES`.
    """
    result: dict[str, Path] = {}
    for name in (CONFIG, *COMPANIONS):
        if (folder / name).is_file():
            result[name] = _place(folder, name)
    return result


def in_folders(folder: Path) -> dict[str, Path]:
    """Return FOLDER/NAME → path, links resolved, of the files in a model's `FOLDERS`.

    Raises SourceError for a link that leaves the model's folder, or a file that is too large.
    """
    result: dict[str, Path] = {}
    for inner in FOLDERS:
        for file in sorted((folder / inner).glob("*")):
            if file.is_file():
                result[f"{inner}/{file.name}"] = _place(folder, f"{inner}/{file.name}")
    return result


def _place(folder: Path, name: str) -> Path:
    """Return the path of the file `name` of a model's folder, links resolved.

    Raises SourceError for a link that leaves the folder, or a file over `bounded_files.MOST_BYTES`.
    """
    place = (folder / name).resolve()
    if not _belongs(folder.resolve(), place):
        raise SourceError(
            f"model {folder}: {name} is a link to {place}, outside of the folder. Copy the file "
            "into the folder if it belongs to the model."
        )
    if place.stat().st_size > bounded_files.MOST_BYTES:
        raise SourceError(
            f"model {folder}: {name} is larger than {bounded_files.MOST_BYTES >> 20} MiB."
        )
    return place


def _belongs(folder: Path, place: Path) -> bool:
    """Return True if a file is in the folder, or in the Hub cache of which the folder is a snapshot."""
    if place.is_relative_to(folder):
        return True
    return folder.parent.name == "snapshots" and place.is_relative_to(folder.parent.parent / "blobs")


def digests(folder: Path) -> dict[str, str]:
    """Return name → BLAKE3 digest, 64 hex digits, of each companion of a model.

    A copy of BASE+ADAPTER has the adapter's two files, too.
    """
    every = {**found(folder), **adapter_folders.files(folder)}
    return {name: digest(file.read_bytes()) for name, file in every.items()}


def digest(content: bytes) -> str:
    """Return the BLAKE3 digest of a file's content, 64 hex digits."""
    return blake3.blake3(content).hexdigest()


def address(weights: str, files: Mapping[str, str]) -> str:
    """Return the content address of a whole model, 64 hex digits.

    `weights` is the digest of its tensors as stored, `files` the digests of its companions.
    """
    return digest(canonical_json({"weights": weights, "files": dict(files)}).encode())


def cleaned(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings without the keys that name code (`CODE`), but with our own `auto_map`.

    Settings of our architectures get `auto_map`, which names the code that is written beside them.
    """
    plain_settings = {key: value for key, value in settings.items() if key not in CODE}
    auto_map = architectures.auto_map(settings)
    return {**plain_settings, "auto_map": auto_map} if auto_map else plain_settings


def naming_code(folder: Path) -> list[str]:
    """Return the names of companions with keys that name code to run, which `cleaned` would change."""
    return [
        name
        for name, file in found(folder).items()
        if (settings := _settings(name, file)) is not None
        and settings.keys() & set(CODE)
        and cleaned(settings) != settings
    ]


def code_files(folder: Path) -> list[str]:
    """Return the sorted names of a folder's Python files that its config.json names as its code."""
    settings = _settings(CONFIG, folder / CONFIG) if (folder / CONFIG).is_file() else None
    classes = (settings or {}).get("auto_map")
    values = classes.values() if isinstance(classes, dict) else ()
    modules = {str(value).rpartition("--")[2].partition(".")[0] for value in values}
    return sorted(f"{name}.py" for name in modules if (folder / f"{name}.py").is_file())


def quant_method(folder: Path) -> str | None:
    """Return the `quant_method` in config.json's quantization_config; None if missing or unreadable."""
    try:
        settings = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    quantisation = settings.get("quantization_config") if isinstance(settings, dict) else None
    return quantisation.get("quant_method") if isinstance(quantisation, dict) else None


def contents(donor: Path) -> dict[str, bytes]:
    """Return name → bytes of the companions, but config.json, that a result takes from its donor.

    A file that names code to be run is rewritten without those keys; the others are the same bytes.
    """
    result: dict[str, bytes] = {}
    for name, file in found(donor).items():
        if name == CONFIG:
            continue
        settings = _settings(name, file)
        if settings is not None and (plain_settings := cleaned(settings)) != settings:
            result[name] = as_text(plain_settings).encode()
        else:
            result[name] = file.read_bytes()
    return result


def write(donor: Path, folder: Path) -> None:
    """Write `contents` of the donor, and the code of its architecture, into an existing folder."""
    settings = _settings(CONFIG, donor / CONFIG) if (donor / CONFIG).is_file() else None
    for name, content in {**contents(donor), **architectures.code(settings or {})}.items():
        (folder / name).write_bytes(content)


def as_text(settings: Mapping[str, object]) -> str:
    """Return settings as the JSON text of results' files, with a line break at the end."""
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _settings(name: str, file: Path) -> dict[str, object] | None:
    """Return the object in a companion's JSON; None if the file holds something else."""
    if not name.endswith(".json"):
        return None
    try:
        settings = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None
    return settings if isinstance(settings, dict) else None
