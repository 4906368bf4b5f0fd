"""One example of every kind of panel, with a band, a gap, an interval and a missing value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agent_forge.runs.panels.panels import (
    Arm,
    Arms,
    Axis,
    Column,
    Edge,
    Front,
    Gate,
    Gates,
    Graph,
    Lead,
    Limit,
    Lines,
    Mark,
    Matrix,
    Metric,
    Node,
    Part,
    Point,
    Sample,
    Samples,
    Series,
    Shares,
    Strip,
    Timeline,
    Units,
)
from agent_forge.runs.panels.stages import Bar, Lane, Measured, Stage

_LOSS, _SUCCESS = Metric(name="loss", better="down"), Metric(name="success", better="up")
_STEP = Axis(name="step", whole=True)

_LINES = Lines(
    name="loss",
    title="Loss",
    says="The loss falls below the limit at step 2.",
    x=_STEP,
    y=Axis(name="loss", better="down", log=True),
    series=(
        Series(name="adamw", seed=0, x=(0, 1, 2), y=(4, 2, 1), low=(3, 1.5, 0.5), high=(5, 2.5, 1.5)),
        Series(name="adamw", seed=1, x=(0, 1, 2), y=(4.5, None, 1.25)),
        Series(name="base", role="reference", x=(0, 2), y=(3, 3)),
    ),
    limits=(Limit(at=1.5, says="good enough"),),
)
_FRONT = Front(
    name="sizes",
    title="Size and loss",
    says="Two of three codecs are beaten by no other.",
    axes=(Axis(name="size", unit="bytes", better="down", log=True), Axis(name="loss", better="down")),
    points=(
        Point(id="a", label="ternary", series="codec", values=(1000, 2.5), kept=True),
        Point(id="b", label="half", series="codec", values=(16000, 2), kept=True),
        Point(id="c", label="wide", series="codec", values=(32000, 2.25), kept=False),
    ),
    chosen="a",
)
_MATRIX = Matrix(
    name="families",
    title="Specialists by family",
    says="Each specialist is best in its own family.",
    rows=("code", "text"),
    columns=("ours", "other"),
    metrics=(_SUCCESS, _LOSS),
    values=((0.75, 0.5), (2, None)),
    low=((0.7, 0.4), (1.5, None)),
    high=((0.8, 0.6), (2.5, None)),
    ours="ours",
    band=(0.6, 0.9),
)
_ARMS = Arms(
    name="arms",
    title="Champion against the base",
    says="The champion is better than the base and level with the mean.",
    metric=_SUCCESS,
    ours="champion",
    baseline="mean",
    arms=(
        Arm(name="champion", value=0.75, low=0.7, high=0.8, n=100),
        Arm(
            name="base",
            group="base",
            value=0.5,
            n=100,
            lead=Lead(value=0.25, low=0.125, high=0.375, verdict="better"),
        ),
        Arm(
            name="mean",
            group="baseline",
            value=0.75,
            n=100,
            lead=Lead(value=0, low=-0.125, high=0.125, verdict="level"),
        ),
    ),
    limit=0.125,
)
_SHARES = Shares(
    name="mix",
    title="Mix of levels",
    says="Harder levels take over.",
    metric=Metric(name="tokens"),
    x=_STEP,
    at=(0, 1),
    parts=(Part(name="easy", values=(3, 1)), Part(name="hard", values=(1, 3))),
)
_UNITS = Units(
    name="levels",
    title="Levels",
    says="Two levels are done.",
    unit="level",
    columns=(
        Column(name="level", type="integer"),
        Column(name="success", type="number", better="up"),
        Column(name="passed", type="flag"),
    ),
    rows=((1, 0.75, True), (2, None, False)),
)
_SAMPLES = Samples(
    name="replies",
    title="Replies",
    says="One of two replies passes.",
    samples=(
        Sample(
            prompt="2 + 2?",
            text="It is 4.",
            marks=(Mark(start=6, end=7, says="right"),),
            verdict="pass",
        ),
        Sample(title="second", prompt="3 + 3?", text="\x1b[31m5", verdict="fail"),
    ),
)
_GATES = Gates(
    name="gates",
    title="Gates",
    says="Quality passes, size was overridden.",
    gates=(
        Gate(
            name="quality",
            metric=_LOSS,
            value=2,
            baseline=1.9,
            low=1.8,
            high=2.2,
            limit=2.5,
            verdict="pass",
        ),
        Gate(
            name="size",
            metric=Metric(name="bytes"),
            value=200,
            limit=100,
            verdict="overridden",
            by="ada",
            reason="a first try",
        ),
    ),
)
_GRAPH = Graph(
    name="family",
    title="Family",
    says="The champion has two parents.",
    metric=_SUCCESS,
    nodes=(
        Node(id="a", name="code", group="source", value=0.5, ours=True),
        Node(id="b", name="text", group="source", value=None, ours=True),
        Node(
            id="c",
            name="champion",
            group="merged",
            column=1,
            value=0.75,
            ours=True,
            lane="1 join",
            run="r.1-join",
        ),
    ),
    edges=(Edge(source="a", target="c", says="ties"), Edge(source="b", target="c", says="ties")),
)
_STRIP = Strip(
    name="stages",
    title="Stages",
    says="One of three stages has ended.",
    unit="stage",
    stages=(
        Stage(
            number=1,
            name="grow",
            what="toy",
            state="ended",
            gate="growth passes",
            figure=Measured(metric=_SUCCESS, value=0.75, low=0.7, high=0.8),
            runs=("r.1-grow",),
        ),
        Stage(
            number=2,
            name="join",
            what="toy",
            state="running",
            inside=0.25,
            left_s=185,
            gate="3 gates wait",
        ),
        Stage(number=3, name="pack", what="toy", state="waiting"),
    ),
)
_TIMELINE = Timeline(
    name="work",
    title="Work",
    says="One attempt failed.",
    began=datetime(2026, 11, 26, 3, 42, tzinfo=UTC),
    until=90,
    lanes=(
        Lane(
            name="1 grow",
            group="runs",
            bars=(Bar(name="1 grow", start=0, end=60, state="done", run="r.1-grow"),),
        ),
        Lane(
            name="2 join", group="runs", bars=(Bar(name="2 join", start=60, end=None, state="running"),)
        ),
        Lane(
            name="host/cpu0",
            group="devices",
            bars=(
                Bar(name="1 grow: count", start=5, end=40, state="done", run="r.1-grow"),
                Bar(name="2 join: count", start=None, end=80, state="failed"),
            ),
        ),
    ),
)

#: Kind of panel → an example.
EVERY: dict[str, Any] = {
    panel.kind: panel
    for panel in (
        *(_LINES, _FRONT, _MATRIX, _ARMS, _SHARES, _UNITS, _SAMPLES, _GATES, _GRAPH),
        *(_STRIP, _TIMELINE),
    )
}
