"""Schemas of the list of pipelines, and of what waits for the user."""

from __future__ import annotations

from api.schemas.runs import Answer, Status
from runs.panels.stages import Standing


class PipelineStage(Answer):
    """A phase of a pipeline in the list."""

    #: From 1.
    number: int
    name: str
    #: A kind of run.
    what: str
    state: Standing
    #: The figure of the gate that has stopped it; empty if none has.
    gate: str
    run: str | None


class PipelineRow(Answer):
    """A pipeline in the list."""

    run: str
    name: str
    kind: str
    status: Status
    owner: str
    priority: int
    labels: list[str]
    #: It was imported only as the past of a fork, and waits.
    past: bool
    submitted_at: str
    updated_at: str
    #: Phases that have ended, of all.
    done: int
    of: int
    stages: list[PipelineStage]
    #: A gate has stopped it: a user decides how it goes on.
    undecided: bool
    #: Bits per byte, and bytes of the file, of the newest measured model that goes on.
    quality: float | None
    bytes: int | None
    #: Device seconds of the pipeline's runs.
    spent: float


class Pipelines(Answer):
    """A page of pipelines, the newest first."""

    pipelines: list[PipelineRow]
    total: int
    next: str | None


class StoppedGate(Answer):
    """A gate that has stopped a pipeline: the phase, the figure, and why in a sentence."""

    name: str
    gate: str
    says: str


class NeedingRun(Answer):
    """A run that has failed. `stopped` is the gate that has stopped it; `version` counts its events."""

    run: str
    name: str
    kind: str
    owner: str
    version: int
    updated_at: str
    stopped: StoppedGate | None
    reason: str


class GoneWorker(Answer):
    """A device whose worker no longer answers, and the run that it worked on."""

    name: str
    device: str
    run: str | None
    run_name: str | None
    seconds: float
    #: When its last status began, seconds since 1970.
    since: float


class Needs(Answer):
    """Facts that wait for the user; `total` counts failed runs."""

    runs: list[NeedingRun]
    total: int
    workers: list[GoneWorker]
