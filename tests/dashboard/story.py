"""Invented runs in the shapes of docs/api.md: a list of events each, and what is to be seen after each.

Numbers come from a seeded generator, so that pages look the same every time.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
CLOSING = {"generation_completed", "champion_changed", "converged", "reseeded"}
PIPELINES = [
    f"{a}-{b}-{c}"
    for a in ("linear", "slerp")
    for b in ("dare", "ties")
    for c in ("frankenmerge", "dfs")
]
GENES = ["code.attention", "code.mlp", "math.attention", "math.mlp", "data.attention", "density"]
SOURCES = ["code", "math", "data"]


def digest(*parts: object) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def stamp(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


@dataclass
class Story:
    """One run from its first event to its last."""

    run: str
    seed: int
    strategy: str = "elite-loser@1"
    generations: int = 8
    size: int = 8
    owner: str = "ada"
    labels: list[str] = field(default_factory=list)
    begun: float = 0.0
    ending: str = "completed"
    events: list[dict[str, Any]] = field(default_factory=list)
    #: Events that have happened so far.
    visible: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.clock = self.begun
        self._tell()
        self.visible = self.visible or len(self.events)

    @property
    def free(self) -> bool:
        """Whether candidates are points in a space of genes."""
        return not self.strategy.startswith("elite-loser")

    def source(self, name: str) -> str:
        return digest(name)

    def _say(self, type_: str, gist: str, seconds: float = 4.0, **data: Any) -> None:
        self.clock += seconds * (0.6 + 0.8 * self.random.random())
        place = len(self.events) + 1
        self.events.append(
            {
                "place": place,
                "position": place,
                "run": self.run,
                "version": place,
                "type": type_,
                "schema": 1,
                "actor": self.owner if type_ in {"submitted", "paused", "resumed"} else "worker-1",
                "recorded_at": stamp(self.clock),
                "gist": gist,
                "data": data,
                "key": f"{self.run}/{type_}/{place}",
                "hash": digest(self.run, place),
            }
        )

    def _tell(self) -> None:
        self._say("submitted", f"submitted by {self.owner}: 3 sources", config={"seed": self.seed})
        if self.ending == "submitted":
            return
        self._say("started", "started on cpu: 3 sources, 6 blocks, 1,150,080 parameters", blocks=6)
        for name in ("base", *SOURCES):
            self._say("evaluated", f"{name} on the selection slice", slice="selection", name=name)
        best: dict[str, Any] | None = None
        before: list[dict[str, Any]] = []
        for generation in range(self.generations):
            rows = self._breed(generation, before)
            for row in rows:
                self._say(row["kind"], f"{row['kind']} {row['recipe_id'][:12]}: generation {generation}"
                          f"/{row['slot']}, {row['pipeline']}", candidate=row)  # fmt: skip
            for row in rows:
                self._say("evaluated", f"{row['recipe_id'][:12]}: {row['search']:.4f} on the draw "
                          f"of generation {generation}", 14, recipe_id=row["recipe_id"],
                          generation=generation, scalar=row["search"])  # fmt: skip
            if generation == 3 and self.seed % 2:
                self._say("task_failed", "evaluating generation 3/5: out of memory (attempt 1)")
            ranked = sorted(rows, key=lambda r: -r["search"])
            for rank, row in enumerate(ranked):
                row["rank"] = rank + 1
            spread = 0.72 * math.exp(-generation / 9) + 0.05 * self.random.random()
            level = "healthy" if spread > 0.3 else "low" if spread > 0.2 else "collapsed"
            self._say("diversity_measured", f"generation {generation}: diversity {spread:.2f}",
                      1, generation=generation, diversity=spread, level=level)  # fmt: skip
            values = [r["search"] for r in rows]
            mean = sum(values) / len(values)
            deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
            self._say("generation_completed", f"generation {generation}: best {max(values):.4f}, "
                      f"mean {mean:.4f}", 0, generation=generation, best=max(values), mean=mean,
                      spread=deviation)  # fmt: skip
            top = ranked[0]
            if best is None or (top["selection"] or 0) > best["selection"]:
                best = top
                self._say("champion_changed", f"champion {top['recipe_id'][:12]}: "
                          f"{top['selection']:.4f}", 0, generation=generation,
                          candidate=top)  # fmt: skip
            before = ranked
        self._end()

    def _breed(self, generation: int, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows = []
        lift = 0.03 * (1 - math.exp(-generation / 4))
        for slot in range(self.size):
            if generation == 0:
                kind, parents = ("sampled" if self.free else "seeded"), []
                pipeline = PIPELINES[slot % 8]
                given = [self.source(name) for name in SOURCES]
            elif slot < self.size * 3 // 4:
                elite = before[slot * 2 // self.size % 2]
                kind, parents, pipeline = "mutated", [elite["recipe_id"]], elite["pipeline"]
                given = parents
            else:
                trio = self.random.sample(before[2:], 3)
                kind, parents = (
                    ("crossed" if self.free else "merged"),
                    [t["recipe_id"] for t in trio],
                )
                pipeline, given = self.random.choice(PIPELINES), parents
            if self.free:
                pipeline = self.random.choice(["task_arithmetic", "ties"])
            search = 0.985 + lift + self.random.gauss(0, 0.011)
            genes = {g: round(self.random.uniform(0, 1.2), 4) for g in GENES} if self.free else {}
            identity = digest(self.run, generation, slot)
            rows.append(
                {
                    "generation": generation,
                    "slot": slot,
                    "recipe_id": identity,
                    "kind": kind,
                    "pipeline": pipeline,
                    "rank": None,
                    "search": search,
                    "selection": search - 0.006 + self.random.gauss(0, 0.003),
                    "perplexity": 7.6 - 18 * (search - 0.985) + self.random.gauss(0, 0.05),
                    "accuracy": 0.43 + 0.8 * (search - 0.985) + self.random.gauss(0, 0.006),
                    "parents": given,
                    "genes": genes,
                    "digest": digest(identity, "weights"),
                }
            )
        return rows

    def _end(self) -> None:
        if self.ending == "completed":
            self._say("converged", "stopped: the generations asked for are done", 0)
            self._say("completed", "completed: the champion beats every source", 30)
        elif self.ending == "failed":
            self._say("task_quarantined", "evaluating generation 7/2 died three times", 3)
            self._say("failed", "failed: a task died three times: evaluating generation 7/2", 1)
        elif self.ending == "cancelled":
            self._say("cancelled", f"cancelled by {self.owner}: wrong data", 1, reason="wrong data")
        elif self.ending == "paused":
            self._say("paused", f"paused by {self.owner}: the machine is needed", 1)


@dataclass
class Seen:
    """What is known of a story after its event `place`."""

    story: Story
    place: int
    candidates: list[dict[str, Any]] = field(default_factory=list)
    generations: list[dict[str, Any]] = field(default_factory=list)
    champion: dict[str, Any] | None = None
    since: int = 0
    status: str = "submitted"
    evaluations: int = 0

    def __post_init__(self) -> None:
        measured: set[str] = set()
        diversity: dict[str, Any] = {}
        for event in self.story.events[: self.place]:
            type_, data = event["type"], event["data"]
            if type_ == "evaluated":
                self.evaluations += 1
                measured.add(str(data.get("recipe_id")))
            elif type_ == "started":
                self.status = "running"
            elif "candidate" in data and type_ != "champion_changed":
                self.candidates.append(data["candidate"])
            elif type_ == "diversity_measured":
                diversity = data
            elif type_ == "generation_completed":
                self.generations.append({**diversity, **data, "changed": False, "champion": None})
            elif type_ == "champion_changed":
                self.champion, self.since = data["candidate"], data["generation"]
                self.generations[-1]["changed"] = True
            elif type_ in {"completed", "failed", "cancelled", "paused"}:
                self.status = type_
            if self.generations and self.champion:
                self.generations[-1]["champion"] = self.champion["selection"]
                self.generations[-1]["champion_id"] = self.champion["recipe_id"]
                self.generations[-1]["components"] = components(self.champion)
        self.candidates = [
            {**row, "rank": row["rank"] if row["generation"] < len(self.generations) else None}
            if row["recipe_id"] in measured
            else {**row, **dict.fromkeys(("rank", "search", "selection", "perplexity", "accuracy"))}
            for row in self.candidates
        ]  # fmt: skip

    @property
    def now(self) -> dict[str, Any]:
        return self.story.events[self.place - 1]


def components(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "perplexity": 7.43 / row["perplexity"],
        "accuracy": row["accuracy"] / 0.431,
        "speed": 1.0,
        "memory": 1.0,
    }
