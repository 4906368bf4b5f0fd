"""The user's home folder, which a container's user or a service may not have."""

from __future__ import annotations

from pathlib import Path

from runs.errors import ConfigError, ForgeError, UnavailableError


def home(variable: str) -> Path:
    """Return the user's home folder; `variable` names what to set if there is none.

    Raises UnavailableError if HOME is not set and the user has no entry in the system's list.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise UnavailableError(
            "this user has no home folder: HOME is not set, and the system's list of users does not "
            f"have the user. Set {variable} to a folder that you can write to."
        ) from error


def expanded(text: str | Path, error: type[ForgeError] = ConfigError) -> Path:
    """Return a path with a leading ~ replaced by the home folder. Raise `error` if there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError as problem:
        raise error(
            f"{str(text)[:200]!r} begins with ~, and that user has no home folder here. Write the "
            "whole path."
        ) from problem


def check_hub_cache() -> None:
    """Raise UnavailableError if the Hub's cache would be in a home folder that there is none of.

    The Hub's library would then make a folder with the name ~ where the program was started.
    """
    from huggingface_hub import constants

    if str(constants.HF_HUB_CACHE).startswith("~"):
        home("HF_HOME")
