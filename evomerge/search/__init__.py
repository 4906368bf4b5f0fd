"""Search strategies, one per file, and the registry of their names and versions.

Strategies are pure: a strategy sees the recorded measurements and proposes recipes. A strategy that
has decided in a run is never changed: its next version is added under another name, so that every
old run can be decided again.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from evomerge.config import ENTRY_POINTS, STRATEGIES, EvoMergeConfig
from evomerge.search.auto import Auto, Auto1
from evomerge.search.cma_es import CmaEs
from evomerge.search.elite_loser import EliteLoser
from evomerge.search.nsga2 import Nsga2
from evomerge.search.strategy import Strategy
from evomerge.search.tournament import Tournament
from runs.errors import ConfigError, StrategyError

__all__ = ["STRATEGIES", "Strategy", "current", "strategy", "unread"]

#: Name that runs record → class, for every version that ever decided in a run.
_BUILT_IN: dict[str, type[Strategy]] = {
    cls.version: cls for cls in (EliteLoser, Tournament, CmaEs, Nsga2, Auto, Auto1)
}

#: Setting → the version that new runs use.
_CURRENT: dict[str, str] = dict(
    zip(STRATEGIES, (c.version for c in (Auto, EliteLoser, Tournament, CmaEs, Nsga2)), strict=True)
)


@cache
def _registered() -> dict[str, type[Strategy]]:
    """Load the strategies that other packages register: setting → class. Raises StrategyError."""
    found: dict[str, type[Strategy]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            cls = point.load()
        except Exception as error:
            raise StrategyError(f"strategy {point.name} cannot be loaded: {error}") from error
        if not (isinstance(cls, type) and issubclass(cls, Strategy)):
            raise StrategyError(
                f"strategy {point.name} is no subclass of evomerge.search.Strategy."
            )
        if cls.version.partition("@")[0] != point.name:
            raise StrategyError(f"strategy {point.name} says that its version is {cls.version}.")
        found[point.name] = cls
    return found


def names() -> list[str]:
    """Return the allowed values of `strategy`, built-in ones first. Raises StrategyError."""
    return [*STRATEGIES, *sorted(_registered())]


def current(config: EvoMergeConfig) -> str:
    """Return the version that a new run with these settings records.

    Raises ConfigError, StrategyError.
    """
    name = config.strategy
    if name not in _CURRENT and name not in _registered():
        raise ConfigError(f"setting strategy: there is {', '.join(names())}; it is {name!r}")
    version = _CURRENT.get(name) or _registered()[name].version
    why = strategy(version).check(config)
    if why is not None:
        raise ConfigError(f"strategy {name}: {why}")
    return version


def unread(config: EvoMergeConfig) -> tuple[str, ...]:
    """Return a warning for each setting that was given but that the strategy does not read."""
    known = [cls.reads or frozenset() for cls in _BUILT_IN.values()]
    mine = strategy(current(config)).reads
    if mine is None:
        return ()
    if not config.path_repeats:
        mine -= {"path_blocks"}
    given = config.model_fields_set & frozenset().union(*known) - mine
    return tuple(
        f"setting {name} has no effect: strategy {config.strategy} does not read it."
        for name in sorted(given)
    )


def strategy(version: str) -> Strategy:
    """Return the strategy of a recorded name like "elite-loser@1". Raises StrategyError."""
    cls = _BUILT_IN.get(version)
    if cls is None:
        own = {cls.version: cls for cls in _registered().values()}
        if version not in own:
            known = ", ".join([*_BUILT_IN, *own])
            raise StrategyError(
                f"strategy {version} is not in this program, which has {known}. The run was made by "
                "another version of agent-forge, or with a strategy of a package that is not "
                "installed here: use that one."
            )
        cls = own[version]
    return cls()
