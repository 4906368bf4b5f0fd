"""Errors that a user can meet. Each says what is wrong, why, and what to do.

`exit_code` is the one of SPEC §9: 1 the run or merge failed, 2 usage or configuration, 3 something
needed is unavailable, 5 not found, 6 conflict.
"""

from __future__ import annotations


class ForgeError(Exception):
    """Base of all errors with a message for people."""

    exit_code = 1


class ConfigError(ForgeError):
    """A setting, a source or a data file that cannot be used. Found before any work."""

    exit_code = 2


class SourceError(ConfigError):
    """A model that cannot be a source."""


class DataError(ConfigError):
    """A data file that cannot be read or does not hold what it should."""


class UnavailableError(ForgeError):
    """Disk, device or file that is needed is not there. The run is intact and can be resumed."""

    exit_code = 3


class SourceChangedError(UnavailableError):
    """A source is no longer what it was when the run started."""


class NotFoundError(ForgeError):
    """No such run, candidate or model."""

    exit_code = 5


class AmbiguousError(NotFoundError):
    """The name, or the beginning of the names, of several."""


class RunFailedError(ForgeError):
    """The run ended in `failed`."""


class RunCancelledError(ForgeError):
    """The run was cancelled."""


class NotFiniteError(ForgeError):
    """NaN or Inf where a number is needed."""


class StrategyError(UnavailableError):
    """A run was made by a search strategy that this program does not have."""


class ConflictError(ForgeError):
    """Something is there already, and is another."""

    exit_code = 6


class TamperedError(ForgeError):
    """A history, an archive or a model is not what its hashes say."""


class EndpointError(UnavailableError):
    """A server that holds a model does not answer, or not as it should."""
