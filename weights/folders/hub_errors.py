"""The error of a model or a data set that the Hub does not give, in words for users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runs.errors import UnavailableError


@contextmanager
def fetching(what: str) -> Iterator[None]:
    """Raise UnavailableError for any trouble with the Hub but a file that a repository lacks."""
    import httpx2  # of huggingface_hub
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
    )

    try:
        yield
    except LocalEntryNotFoundError as error:  # without the Hub nothing is known of the file
        raise not_fetched(what, error) from error
    except EntryNotFoundError:
        raise
    except (HfHubHTTPError, OSError, ValueError, httpx2.HTTPError) as error:
        raise not_fetched(what, error) from error


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
