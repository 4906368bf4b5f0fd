"""Search strategies, one per file, and the registry of their names and versions.

Strategies are pure: a strategy sees the recorded measurements and proposes recipes. A strategy that
has decided in a run is never changed: its next version is added under another name, so that every
old run can be decided again.
"""

from __future__ import annotations

from functools import cache

from pydantic import ValidationError

from agent_forge.evomerge.config import STRATEGIES, EvoMergeConfig, explain
from agent_forge.evomerge.search.strategies.auto import Auto, Auto1
from agent_forge.evomerge.search.strategies.cma_es import CmaEs
from agent_forge.evomerge.search.strategies.elite_loser import EliteLoser
from agent_forge.evomerge.search.strategies.nsga2 import Nsga2
from agent_forge.evomerge.search.strategies.tournament import Tournament
from agent_forge.evomerge.search.strategy import Strategy
from agent_forge.evomerge.search_settings import named, plugins
from agent_forge.runs.errors import ConfigError, StrategyError

__all__ = ["STRATEGIES", "Strategy", "current", "registered", "strategy"]

#: Name that runs record → class, for every version that ever decided in a run.
_BUILT_IN: dict[str, type[Strategy]] = {
    cls.version: cls for cls in (EliteLoser, Tournament, CmaEs, Nsga2, Auto, Auto1)
}

#: Setting → the version that new runs use.
_CURRENT: dict[str, str] = dict(
    zip(STRATEGIES, (c.version for c in (Auto, EliteLoser, Tournament, CmaEs, Nsga2)), strict=True)
)


@cache
def registered() -> dict[str, type[Strategy]]:
    """Return {setting: class} of the strategies that other packages register. Raises StrategyError."""
    classes: dict[str, type[Strategy]] = {}
    for name, cls in plugins().items():
        if not (isinstance(cls, type) and issubclass(cls, Strategy)):
            raise StrategyError(
                f"strategy {name} is no subclass of agent_forge.evomerge.search.Strategy."
            )
        if cls.version.partition("@")[0] != name:
            raise StrategyError(f"strategy {name} says that its version is {cls.version}.")
        classes[name] = cls
    return classes


def names() -> list[str]:
    """Return the allowed values of setting `strategy`, built-in ones first. Raises StrategyError."""
    return [*STRATEGIES, *sorted(registered())]


def current(config: EvoMergeConfig) -> str:
    """Return the strategy's version, as "auto@2", that a new run with these settings records.

    Raises ConfigError, StrategyError.
    """
    name = config.strategy
    if name not in _CURRENT and name not in registered():
        raise ConfigError(f"setting strategy: there is {', '.join(names())}; it is {name!r}")
    version = _CURRENT.get(name) or registered()[name].version
    if name not in _CURRENT:
        _check_own(config, registered()[name])
    why = strategy(version).check(config)
    if why is not None:
        raise ConfigError(f"strategy {name}: {why}")
    return version


def _check_own(config: EvoMergeConfig, cls: type[Strategy]) -> None:
    """Raise ConfigError if the settings are not those of a registered strategy."""
    try:
        named(cls.settings, config.strategy).model_validate(config.search.model_dump())
    except ValidationError as error:
        errors = [{**e, "loc": ("search", config.strategy, *e["loc"])} for e in error.errors()]
        raise ConfigError("\n".join(f"{explain(e)[1]}." for e in errors)) from error


def strategy(version: str) -> Strategy:
    """Return a strategy by its recorded version, such as "elite-loser@1". Raises StrategyError."""
    cls = _BUILT_IN.get(version)
    if cls is None:
        registry = {cls.version: cls for cls in registered().values()}
        if version not in registry:
            strategy_names = ", ".join([*_BUILT_IN, *registry])
            raise StrategyError(
                f"strategy {version} is not in this program, which has {strategy_names}. The "
                "run was made by "
                "another version of agent-forge, or with a strategy of a package that is not "
                "installed here: use that one."
            )
        cls = registry[version]
    return cls()
