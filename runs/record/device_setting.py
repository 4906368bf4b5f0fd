"""The setting `device`, which every kind of run has: its default and its description. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_forge.events.envelope import Data

#: The device is chosen where the run starts: the first GPU, or the CPU if there is none.
AUTO = "auto"
CPU = "cpu"
#: What the setting is, in the words of `forge settings`.
DEVICE = "auto, cpu or cuda:N; auto: a GPU if there is one where the run starts, else the CPU."


def with_device(settings: Mapping[str, object], pinned: str) -> dict[str, object]:
    """Return the settings as a dict, with the pinned device, or else the CPU, in the place of auto.

    `pinned` is auto for a run that pins no device, such as a pipeline, whose phases pin one each: the
    device is then the CPU, which was the default before auto. So no digest depends on the word auto.
    """
    if settings.get("device") != AUTO:
        return dict(settings)
    return {**settings, "device": CPU if pinned == AUTO else pinned}


def on_cpu(data: Data) -> dict[str, Any]:
    """Return an old event's data with the device CPU if it names none: auto was not the default."""
    return {**data, "config": {"device": CPU, **data["config"]}}
