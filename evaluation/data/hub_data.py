"""Data sets of the Hugging Face Hub as folders of files: `hub:OWNER/NAME[@REVISION]`.

Only the data files are fetched, into the Hub's own cache; no code of a data set is run. What a run
reads is the folder of one commit.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.data.file_formats import KINDS
from runs.errors import DataError
from runs.system import user_folders
from weights.folders.hub_errors import not_fetched

PREFIX = "hub:"


def is_hub(place: str) -> bool:
    """Return True if a place of data names a data set of the Hub."""
    return place.startswith(PREFIX)


def fetch(place: str) -> Path:
    """Fetch a data set; return the folder of its files, named by its commit.

    Raises DataError for a name that none can have, UnavailableError if it cannot be fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, _, revision = place.removeprefix(PREFIX).partition("@")
    if repository.count("/") != 1:
        raise DataError(
            f"{place}: a data set of the Hub is hub:OWNER/NAME or hub:OWNER/NAME@REVISION."
        )
    user_folders.check_hub_cache()
    endings = [f"{kind}{packed}" for kind in KINDS for packed in ("", ".gz")]
    patterns = ["*" + "".join(f"[{c}{c.upper()}]" for c in ending) for ending in endings]
    try:
        return Path(
            snapshot_download(
                repository,
                repo_type="dataset",
                revision=revision or None,
                allow_patterns=patterns,
                ignore_patterns=["dataset_infos.json", "*/dataset_infos.json"],
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise not_fetched(f"data set {repository}", error) from error
