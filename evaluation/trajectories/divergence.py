"""Divergence of one model from another along trajectories, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evaluation.backends.local_backend import ResidentModel
from weights.training.models import prompted
from weights.training.trajectories import Trajectory


def along(
    writer: ResidentModel, reader: ResidentModel, trajectories: Sequence[Trajectory]
) -> list[float]:
    """Return Σ KL(writer ‖ reader) over the reply of each trajectory, nats.

    The writer reads the prompted beginning, the reader the plain one; every trajectory is read alone.
    A divergence that rounding makes negative is 0.
    """
    return [max(0.0, _one(writer, reader, trajectory)) for trajectory in trajectories]


def _one(writer: ResidentModel, reader: ResidentModel, trajectory: Trajectory) -> float:
    double = torch.float64
    writer_logits = prompted.along(writer.logits, trajectory.prompted, trajectory.reply, double)
    reader_logits = prompted.along(reader.logits, trajectory.plain, trajectory.reply, double)
    return float(prompted.divergences(writer_logits, reader_logits).sum())
