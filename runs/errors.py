"""Errors that a user can meet, each saying what is wrong, why, and what to do.

`exit_code` is the one of SPEC §9: 1 the run or merge failed, 2 usage or configuration, 3 something
needed is unavailable, 5 not found, 6 conflict. `did_you_mean` suggests known names for an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ForgeError(Exception):
    """Base of all errors with a message for people."""

    exit_code = 1


class ConfigError(ForgeError):
    """A setting, a source or a data file that cannot be used, found before any work."""

    exit_code = 2


class SourceError(ConfigError):
    """A model that cannot be a source."""


class UnmeasurableError(SourceError):
    """A model that gives NaN or Inf for a text."""

    def __init__(self, model: str, text: str) -> None:
        """Set a message that names the model and the text, and `reason`, which leaves out the model."""
        self.reason = f"it gives no finite number for text {text!r}"
        super().__init__(
            f"model {model} gives no finite number for text {text!r}: it cannot be measured."
        )


class DataError(ConfigError):
    """A data file that cannot be read or does not hold what it should."""


class UnavailableError(ForgeError):
    """A missing disk, device or file that is needed. The run is intact and can be resumed."""

    exit_code = 3


class SourceChangedError(UnavailableError):
    """A source that has changed since the run started."""


class UnreproducedError(UnavailableError):
    """Other numbers than those that the run has pinned, under the profile that it has pinned."""


class NotFoundError(ForgeError):
    """No such run, candidate or model."""

    exit_code = 5


class AmbiguousError(NotFoundError):
    """A name, or the beginning of a name, that fits several runs or models."""


class RunFailedError(ForgeError):
    """A run that ended in `failed`."""


class RunCancelledError(ForgeError):
    """A run that was cancelled."""


class NotFiniteError(ForgeError):
    """NaN or Inf in place of a finite number."""


class StrategyError(UnavailableError):
    """A run made by a search strategy that this program does not have."""


class ConflictError(ForgeError):
    """A file, model, user or other thing that exists already and differs."""

    exit_code = 6


class TamperedError(ForgeError):
    """A history, an archive or a model that does not match its hashes."""


class EndpointError(UnavailableError):
    """A server of a model that does not answer, or not as it should."""


class UnknownKindError(UnavailableError):
    """A run of a kind that this program does not have."""


class UnknownAlgorithmError(UnavailableError):
    """A recipe names an operation, objective, optimiser or schedule that this program lacks."""


class TrainingDivergedError(ForgeError):
    """A training whose loss or gradient is not finite, or whose loss is far above its average."""

    def __init__(self, step: int, why: str) -> None:
        """Say that step `step` (from 0) ended the training, and why."""
        super().__init__(
            f"the training diverged at step {step}: {why}. No later step was done; the snapshots "
            "before it are whole. Try a lower learning rate."
        )
        self.step = step


class SnapshotDamagedError(TamperedError):
    """A snapshot of a training whose files are missing, truncated or changed."""


#: Names that are suggested at most, and how alike they must be, 0 to 1.
MOST, ALIKE = 3, 0.6


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return " (did you mean A or B?)" with known names that are like a name; empty without any.

    A known name is like it if most letters are the same, or if it begins with the name.
    """
    names = sorted(candidates)
    begun = [candidate for candidate in names if name and candidate.startswith(name.lower())]
    like = dict.fromkeys([*begun, *get_close_matches(name.lower(), names, MOST, ALIKE)])
    return f" (did you mean {' or '.join(list(like)[:MOST])}?)" if like else ""
