"""The mix of an arm's next segment, and additions to it: stages, chaos, dreams, a self-model. Pure.

Every family has a frontier, the highest level that it is to learn now. A level is passed if success on
it is above `promote`. The rules of the arms that follow success are a file each: `window_rule.py` and
`frontier_rule.py`.

The arms `chaos`, `dreams` and `self_model` are `adaptive` with one addition. The arm `stages` goes
through seven stages: assessment, which is the measurement before the first segment, and six that are
even parts of the segments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType

from agent_forge.evaluation.task_families import uses_tools
from agent_forge.phases.curriculum.mixing import frontier_rule, window_rule
from agent_forge.phases.curriculum.mixing.frontier_rule import (
    Frontiers,
    Measured,
    Mix,
    cell,
    cells,
    even,
    passed,
)
from agent_forge.phases.curriculum.recipes import Frontier, Stage
from agent_forge.phases.curriculum.settings import (
    ADDITIONS,
    STAGED,
    Addition,
    Arm,
    CurriculumConfig,
    Rule,
)

#: Rule → the module with its functions `moved` and `mix`.
RULES: dict[Rule, ModuleType] = {"window": window_rule, "frontier": frontier_rule}
#: Share of all other families in the stage of tool use.
OTHERS = 0.2
#: The part of a name of a stream of ordinary text where others have the family.
TEXT = "text"


def choose(
    config: CurriculumConfig, arm: Arm, segment: int, measured: Measured, before: Frontiers
) -> tuple[Mix, dict[str, Frontier]]:
    """Return (cell → share of an arm's segment, family → frontier); no frontiers in fixed orders.

    `before` are the frontiers of the previous segment, empty at the first.
    """
    if arm == "uniform":
        return even(cells(config)), {}
    if arm == "easy_to_hard":
        top = -(-(segment + 1) * config.levels // config.segments)
        levels = range(1, min(top, config.levels) + 1)
        return even([cell(f, level) for f in sorted(config.families) for level in levels]), {}
    if arm == "stages":
        return _staged(config, segment, measured, before)
    return _followed(config, measured, before)


def _followed(
    config: CurriculumConfig, measured: Measured, before: Frontiers
) -> tuple[Mix, dict[str, Frontier]]:
    """Return (cell → share, family → frontier) by the rule of the settings."""
    rule = RULES[config.rule]
    frontiers = {f: rule.moved(config, f, measured, before.get(f)) for f in sorted(config.families)}
    return rule.mix(config, measured, frontiers), frontiers


def _staged(
    config: CurriculumConfig, segment: int, measured: Measured, before: Frontiers
) -> tuple[Mix, dict[str, Frontier]]:
    """Return (cell → share of a segment of the arm `stages`, family → frontier).

    Families that use tools come in with the stage of tool use, where they have most of the items. If
    there are no others, they are there from the beginning.
    """
    now = stage(config, "stages", segment)
    plain = tuple(family for family in config.families if not uses_tools(family)) or config.families
    early = config.model_copy(update={"families": plain})
    if now == "base_adaptation":
        return even(cells(early)), {}
    if now == "edge_of_chaos":
        return _followed(early, measured, before)
    shares, frontiers = _followed(config, measured, before)
    if now == "tool_use" and len(plain) < len(config.families):
        shares = _mostly_tools(shares)
    return shares, frontiers


def _mostly_tools(shares: Mix) -> Mix:
    """Return a mix where families without tools have the share `OTHERS`, if there are both kinds."""
    tools = {name for name in shares if uses_tools(name.partition("/")[0])}
    tool_share, rest = (
        math.fsum(share for name, share in shares.items() if (name in tools) == which)
        for which in (True, False)
    )
    if not tool_share or not rest:
        return shares
    return {
        name: share * ((1 - OTHERS) / tool_share if name in tools else OTHERS / rest)
        for name, share in shares.items()
    }


def with_dreams(config: CurriculumConfig, shares: Mix, dreams: Sequence[str]) -> Mix:
    """Return a mix where the streams `dreams`, if any, have the share `dream`, all alike."""
    if not dreams:
        return shares
    remainder = {name: share * (1 - config.dream) for name, share in shares.items()}
    return remainder | dict.fromkeys(sorted(dreams), config.dream / len(dreams))


def with_text(config: CurriculumConfig, shares: Mix) -> Mix:
    """Return a mix where ordinary text has the share `text` of the settings, its domains all alike."""
    if not config.text:
        return shares
    remainder = {name: share * (1 - config.text) for name, share in shares.items()}
    each = config.text / len(config.text_domains)
    return remainder | {cell_of_text(domain): each for domain in sorted(config.text_domains)}


def cell_of_text(domain: str) -> str:
    """Return "text/DOMAIN", the name of the stream of a domain's ordinary text."""
    return f"{TEXT}/{domain}"


#: Stages of training, in their order.
STAGES: tuple[Stage, ...] = (
    "base_adaptation",
    "edge_of_chaos",
    "tool_use",
    "chaos",
    "dreams",
    "self_model",
)
assert len(STAGES) == STAGED
#: Arms whose mix follows from success.
FOLLOWING: frozenset[Arm] = frozenset({"adaptive", "chaos", "dreams", "self_model", "stages"})


def stage(config: CurriculumConfig, arm: Arm, segment: int) -> Stage | None:
    """Return the stage of a segment counted from 0; None for arms without stages."""
    return STAGES[segment * STAGED // config.segments] if arm == "stages" else None


def added(config: CurriculumConfig, arm: Arm, segment: int) -> tuple[Addition, ...]:
    """Return the additions of a segment, such as "chaos" or "dreams", in the order of `ADDITIONS`."""
    if arm == "stages":
        return tuple(addition for addition in ADDITIONS if addition == stage(config, arm, segment))
    if arm not in FOLLOWING:
        return ()
    burst = (segment + 1) % config.burst_every == 0 and segment + 1 < config.segments
    return tuple(
        addition
        for addition in ADDITIONS
        if (addition in config.adds or addition == arm) and (addition != "chaos" or burst)
    )


def dreamt(config: CurriculumConfig, arm: Arm, segment: int, measured: Measured) -> tuple[str, ...]:
    """Return the passed cells, without tools, to dream of ahead of a segment; () if it has none."""
    if "dreams" not in added(config, arm, segment):
        return ()
    families = (name.partition("/") for name in cells(config))
    return tuple(
        f"{family}/{level}"
        for family, _, level in families
        if not uses_tools(family) and passed(config, family, measured, int(level))
    )
