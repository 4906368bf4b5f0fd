"""Files that are opened by the hundred: the limit of open files, and faults of the machine."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runs.errors import UnavailableError

#: Errors of the machine, not of the file.
TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
#: The soft limit that is asked for if the hard one is infinite: macOS takes no more.
MOST = 10_240
_TOO_MANY = "Too many open files"


def allow_many() -> None:
    """Raise this process's limit of open files as far as its user may.

    A model of 160 shards takes a descriptor for each, and a soft limit of 256 is common.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return  # the kernel allows fewer than it says; opening says when they are used up


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn the machine's faults on opening or reading `file` into an UnavailableError.

    Other errors pass. Libraries report a lack of descriptors as an error of their own without a
    number, or as a file that does not exist.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = getattr(error, "errno", None)
        hidden = isinstance(error, FileNotFoundError) and number is None and file.exists()
        if number in (errno.EMFILE, errno.ENFILE) or _TOO_MANY in str(error) or hidden:
            raise too_many(file) from error
        if number in TRANSIENT and isinstance(error, OSError):
            raise UnavailableError(f"{file} cannot be read now: {error.strerror}.") from error
        raise


def too_many(file: Path) -> UnavailableError:
    """Return the error for a file that cannot be opened because too many are open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UnavailableError(
        f"{file} cannot be opened: too many open files, {limit:,} are allowed. Allow more with "
        "`ulimit -n 4096` in this shell, or store the models in fewer, larger files."
    )
