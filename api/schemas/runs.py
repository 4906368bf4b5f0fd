"""Schemas of the answers about a run, its current activity and its checks.

The OpenAPI document and the dashboard's types are made from them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from agent_forge.runs.panels.head import OpenPart
from agent_forge.weights.cost import Speed

Status = Literal["submitted", "running", "paused", "completed", "failed", "cancelled"]
Action = Literal["pause", "resume", "cancel", "retry", "priority", "export", "fork"]
Json = dict[str, Any]


class Answer(BaseModel):
    """An answer with exactly these fields: the dashboard's types are generated from them."""

    model_config = ConfigDict(extra="forbid")


class Row(Answer):
    """A run in a list."""

    run: str
    #: What it is called: a label, unique in the log, which users change.
    name: str
    note: str
    tags: list[str]
    #: The run that it is a task of.
    part_of: str | None
    kind: str
    status: Status
    owner: str
    priority: int
    labels: list[str]
    device: str
    #: It was imported only as the past of a fork, and waits.
    past: bool
    #: A gate has stopped it: a user decides how it goes on.
    undecided: bool
    submitted_at: str
    updated_at: str
    parent: str | None
    generation: int | None
    champion: str | None
    #: The result as the run's head has it: value, metric, unit, which end is better, the slice.
    value: float | None
    metric: str
    unit: str
    better: Literal["up", "down"] | None
    measured_on: str
    #: The unit of `generation`, such as "step".
    done_unit: str
    version: int
    device_seconds: float
    #: One value a unit, and what it is, such as "loss".
    curve: list[float | None]
    curve_of: str


class Again(Answer):
    """A run as it was asked for: what `POST /runs` takes to start it again."""

    kind: str
    #: Models by role, but for `base`, if the run has others than those of the kind's main role.
    models: list[str] | dict[str, list[str]]
    base: str | None
    data: list[str]
    config: Json
    #: The settings as the text of a file, of kinds that have one; `config` is empty then.
    file: str | None
    priority: int
    labels: list[str]
    quarantine: str


class Rows(Answer):
    """A page of runs, the newest first."""

    runs: list[Row]
    total: int
    next: str | None


class SourceModel(Answer):
    """A source or base of a run; what is read of it is null before the run has started."""

    name: str
    recipe_id: str | None
    digest: str | None
    path: str | None


class Champion(Answer):
    """The champion: its score on the selection slice, and its normalised components there."""

    recipe_id: str
    name: str
    what: str
    score: float | None
    since: int
    components: dict[str, float]
    digest: str


class Headline(Answer):
    """The champion's score to show first; with its lead over the best source once it is tested."""

    slice: Literal["selection", "test"]
    score: float
    unit: str
    items: int | None
    over: str | None
    lead: float | None
    low: float | None
    high: float | None


class GenerationRow(Answer):
    """A generation: scores on its own draw, the champion's on selection."""

    generation: int
    best: float | None
    mean: float | None
    spread: float | None
    champion: float | None
    champion_id: str | None
    changed: bool
    diversity: float | None
    level: str | None
    components: dict[str, float]


class Technique(Answer):
    """Earnings of one merge technique."""

    technique: str
    candidates: int
    better_half: int
    best: float | None
    champions: int


class GeneRow(Answer):
    """Correlation of the score with one gene."""

    gene: str
    correlation: float | None
    candidates: int


class FrontAxis(Answer):
    """An objective as people know it, and which end of it is better."""

    name: str
    better: Literal["up", "down"]


class FrontPoint(Answer):
    """A candidate: objectives as they are searched (larger is better), values as the axes say."""

    candidate: str
    objectives: list[float]
    values: list[float]


class ParetoFront(Answer):
    """The Pareto front on the selection slice, and what it dominates."""

    objectives: list[str]
    axes: list[FrontAxis]
    candidates: list[FrontPoint]
    dominated: list[FrontPoint]
    reference: list[float] | None
    hypervolume: float | None


class SkillRow(Answer):
    """One kind of items of a domain: the champion, and each other model by name."""

    #: A name that no other row has.
    skill: str
    domain: str
    kind: Literal["text", "questions", "problems"]
    #: Problems solved, questions right, bits per byte or nats per token.
    metric: str
    #: Number of the items.
    of: int
    better: Literal["up", "down"]
    champion: float | None
    others: dict[str, float | None]


class Skills(Answer):
    """Skills by model, on one slice."""

    slice: Literal["selection", "test"]
    rows: list[SkillRow]


class Rival(Answer):
    """The champion's lead over a model, on the test slice, with its 95 % interval."""

    name: str
    kind: str
    score: float | None
    perplexity: float | None
    accuracy: float | None
    lead: float | None
    low: float | None
    high: float | None
    beaten: bool | None
    worse: bool | None
    #: What the champion is beside it; None if it has no score.
    verdict: Literal["better", "level", "worse"] | None


class Spent(Answer):
    """Budget that the search has used so far."""

    evaluations: int
    items: int
    device_seconds: float
    wall_seconds: float


class Components(Answer):
    """The raw measurements of one model on some items."""

    perplexity: float
    next_token_accuracy: float
    choice_accuracy: float | None
    accuracy: float
    flops: float
    bytes: float
    domains: dict[str, float]
    accuracies: dict[str, float] = {}
    bits_per_byte: float | None = None
    solved: float | None = None


class Test(Answer):
    """The champion on the test slice."""

    score: float | None
    quality: float | None
    components: Components | None


class GivenModel(Answer):
    """Base, source or baseline: a model that the search began with."""

    name: str
    kind: Literal["base", "source", "baseline"]


class Verdict(Answer):
    """The champion beside sources, base and baselines on the test slice, in words."""

    #: The model that the run was given and that the champion is; None: a new one.
    given: GivenModel | None
    beats_sources_and_base: bool
    level: list[str]
    worse: list[str]
    not_beaten: list[str]
    best_baseline: str | None
    loses_to_best_baseline: bool
    beats_best_baseline: bool
    sentence: str


class ShapeCost(Answer):
    """Cost of a model, by arithmetic."""

    flops_per_token: float
    bytes: float
    blocks: int


class ModelCost(ShapeCost):
    """Cost of the champion, or before it of the base; cost of the sources; the measured speed."""

    sources: ShapeCost
    measured: Speed | None


class Thresholds(Answer):
    """Diversity below `low` is said; below `reseed` candidates are replaced."""

    low: float
    reseed: float


class Origin(Answer):
    """Branching point of a fork: an event of the parent, and its version in the parent's stream."""

    run: str
    run_name: str
    place: int
    version: int


class Progress(Answer):
    """Units that are done, and units in all where that is known; `unit` is the kind's."""

    done: int
    of: int | None
    unit: str


class Decision(Answer):
    """An open decision of a user about a stopped run: about what, and why in a sentence."""

    about: str
    says: str


class PartOf(Answer):
    """The run that a run is a task of, its stage there in words, and the runs of its neighbours."""

    run: str
    name: str
    stage: str
    previous: str | None
    next: str | None


class RunFacts(Answer):
    """A run of any kind, now or as it was; docs/api.md has every field."""

    run: str
    #: As the list of runs has it now; so are note, tags and the key that a user submitted the run with.
    name: str
    note: str
    tags: list[str]
    key: str | None
    kind: str
    status: Status
    reason: str | None
    #: A user overrides what has stopped it, forks it, or cancels it; a retry changes nothing.
    decision: Decision | None
    owner: str
    priority: int
    labels: list[str]
    device: str | None
    submitted_at: str
    updated_at: str
    place: int
    places: int
    version: int
    head: str
    forked_from: Origin | None
    allowed: list[Action]
    config: Json
    warnings: list[str]
    pending: list[str]
    failures: dict[str, int]
    quarantined: list[str]
    words: dict[str, str]
    progress: Progress
    lineage_digest: str | None
    part_of: PartOf | None
    #: Its tasks are runs: its page shows these, too.
    delegates: bool
    #: Role → id in the model registry, of the models that a completed run gives.
    results: dict[str, str]


class Run(RunFacts):
    """A merging run."""

    search_ended: str | None
    strategy: str | None
    sources: list[SourceModel]
    base: SourceModel | None
    parameters: int | None
    blocks: int | None
    generation: int | None
    generations_wanted: int | None
    champion: Champion | None
    headline: Headline | None
    items: dict[str, int] | None
    skills: Skills | None
    diversity: float | None
    level: str | None
    thresholds: Thresholds
    generations: list[GenerationRow]
    techniques: list[Technique]
    genes: list[GeneRow]
    front: ParetoFront | None
    stages: dict[str, float]
    cost: ModelCost | None
    spent: Spent
    test: Test | None
    rivals: list[Rival]
    verdict: Verdict | None


class AtWork(Answer):
    """A device or process, and the task that it has in hand, in words."""

    who: str
    doing: str
    seconds: float | None


class Activity(Answer):
    """Current activity of a run, from leases and heartbeats. The log has none of it."""

    run: str
    status: Status
    place: int
    doing: str | None
    at_work: list[AtWork]
    waits_for: str | None
    #: The command that ends the wait, if there is one.
    helps: str | None
    #: The run that works for it, or waits, if its tasks are runs.
    part: OpenPart | None
    done: int
    of: int | None
    #: What `done` and `of` count: tasks, or a kind's units.
    unit: str
    inside: float | None
    eta_s: float | None
    #: Share, units and time left in words.
    progress: str
    elapsed_s: float | None


class CheckFinding(Answer):
    """A finding of a check; `place` is the event's place in the history."""

    level: Literal["error", "unchecked", "note"]
    check: str
    message: str
    place: int | None


class Check(Answer):
    """A check of a run's history: `broken` means the history, `wrong` a model or a file."""

    by: str
    at: str
    outcome: Literal["intact", "broken", "wrong", "unchecked"]
    #: Models were made again from nothing and came out equal.
    reproduced: bool
    events: int
    #: Version of the run at the check.
    version: int
    rebuilt: int | None
    checks: list[str]
    errors: int
    findings: list[CheckFinding]


class Checks(Answer):
    """The newest checks of a run, the newest first, and those that must not be forgotten."""

    checks: list[Check]
    #: The newest check that found the history broken; null if none did.
    broken: Check | None
    #: The newest check that made models again and found them equal; null if none did.
    reproduced: Check | None
    #: How the history differs from what the last intact check saw; null if it does not.
    changed: str | None
    running: bool
    #: Why the last check did not end with an outcome.
    error: str | None
