"""The error of a model or a data set that the Hub does not give, in words for users."""

from __future__ import annotations

from runs.errors import UnavailableError


def not_fetched(what: str, error: Exception) -> UnavailableError:
    """Return the error for something that is neither in the local cache nor can be fetched.

    `error` is huggingface_hub's; its first line is the reason.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0].removeprefix("Got: ").rstrip(".") if lines else type(error).__name__
    return UnavailableError(
        f"{what} is not in the local cache and cannot be fetched: {reason}. Check the name, the "
        "network and HF_TOKEN."
    )
