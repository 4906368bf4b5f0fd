"""Answers in the shapes of docs/api.md, from invented runs."""

from __future__ import annotations

import random
from typing import Any

from api import views
from evomerge.config import EvoMergeConfig
from tests.dashboard.story import CLOSING, GENES, SOURCES, Seen, Story, digest, stamp

ALLOWED = {
    "submitted": ["pause", "cancel", "priority"],
    "running": ["pause", "cancel", "priority", "fork"],
    "paused": ["resume", "cancel", "priority", "fork"],
    "completed": ["fork", "export"],
    "failed": ["retry", "fork"],
    "cancelled": ["fork", "export"],
}
SCHEMA = views.settings()["schema"]
DEFAULTS = EvoMergeConfig().model_dump(mode="json")
CONFIG = DEFAULTS | {"generations": 8, "strategy": "elite-loser", "search_windows": 40}

STORIES = [
    Story("20261121-a9fb60", 11, owner="ada", labels=["demo"], begun=86_000),
    Story("20261121-c4e107", 24, "nsga2@2", 22, 16, "grace", ["big-gpu", "pareto"], 90_000,
          "running", visible=470),
    Story("20261120-77d0aa", 31, "elite-loser@1", 6, 8, "ada", [], 40_000, "failed"),
    Story("20261120-1b3c9f", 42, "elite-loser@1", 5, 8, "linus", ["demo"], 20_000, "cancelled"),
    Story("20261121-f00d12", 53, "cma-es@1", 9, 8, "grace", [], 95_000, "paused"),
    Story("20261121-0ab5e1", 64, owner="ada", begun=99_000, ending="submitted"),
]  # fmt: skip


class World:
    """Everything that the canned server knows."""

    def __init__(self, many: int = 40) -> None:
        self.stories = {s.run: Story(**_again(s)) for s in STORIES}
        self.others = [_row(number) for number in range(many)]
        self.users = [
            {
                "name": "ada",
                "role": "admin",
                "tokens": [{"id": "3f9a1c", "note": "first start", "issued_at": stamp(0)}],
            },
            {
                "name": "grace",
                "role": "submitter",
                "tokens": [{"id": "b07e52", "note": "laptop", "issued_at": stamp(9)}],
            },
            {"name": "linus", "role": "viewer", "tokens": []},
        ]
        self.models = _models(self)

    def row(self, story: Story) -> dict[str, Any]:
        seen = Seen(story, story.visible)
        return {
            "run": story.run, "status": seen.status, "owner": story.owner, "priority": 0,
            "labels": story.labels, "submitted_at": story.events[0]["recorded_at"],
            "updated_at": seen.now["recorded_at"], "parent": None,
            "generation": len(seen.generations) - 1 if seen.generations else None,
            "champion": seen.champion and seen.champion["recipe_id"],
            "score": seen.champion and seen.champion["selection"], "version": story.visible,
            "device_seconds": seen.evaluations * 5.3,
            "curve": [g["best"] for g in seen.generations],
        }  # fmt: skip

    def rows(self, status: str, owner: str, q: str) -> list[dict[str, Any]]:
        rows = [self.row(s) for s in self.stories.values()] + self.others
        rows.sort(key=lambda r: r["submitted_at"], reverse=True)
        return [
            r for r in rows
            if (not status or r["status"] == status)
            and (not owner or r["owner"] == owner)
            and (not q or q in r["run"] or any(q in label for label in r["labels"]))
        ]  # fmt: skip

    def run(self, name: str, at: int | None) -> dict[str, Any]:
        story = self.stories[name]
        place = story.visible if at is None else at
        seen = Seen(story, place)
        done = seen.status == "completed"
        champion = seen.champion
        techniques: dict[str, dict[str, Any]] = {}
        for row in seen.candidates:
            entry = techniques.setdefault(
                row["pipeline"],
                {"technique": row["pipeline"], "candidates": 0, "better_half": 0, "best": None,
                 "champions": 0},
            )  # fmt: skip
            entry["candidates"] += 1
            entry["better_half"] += bool(row["rank"] and row["rank"] <= story.size // 2)
            entry["best"] = max(filter(None, [entry["best"], row["selection"]]), default=None)
        return {
            **{k: v for k, v in self.row(story).items() if k not in {"curve", "score"}},
            "status": seen.status, "strategy": story.strategy, "device": "cpu",
            "reason": seen.now["gist"] if seen.status in {"failed", "cancelled"} else None,
            "updated_at": seen.now["recorded_at"],
            "seconds_since_start": story.clock - story.begun, "place": place,
            "places": story.visible, "version": place, "head": seen.now["hash"],
            "forked_from": None, "allowed": ALLOWED[seen.status] if at is None else ["fork"],
            "config": {**CONFIG, "strategy": story.strategy.partition("@")[0], "seed": story.seed},
            "sources": [_source(n) for n in SOURCES], "base": _source("base"),
            "parameters": 1_150_080, "blocks": 6,
            "warnings": [] if story.seed != 31 else ["no base is given: the first source stands in"],
            "generation": len(seen.generations) if seen.status == "running"
            else max(0, len(seen.generations) - 1),
            "generations_wanted": story.generations, "pending": [], "failures": {},
            "quarantined": ["7/2"] if seen.status == "failed" else [],
            "champion": champion and {
                "recipe_id": champion["recipe_id"], "name": f"{champion['pipeline']} "
                f"{champion['generation']}/{champion['slot']}",
                "what": f"{champion['kind']} {champion['pipeline']}",
                "score": champion["selection"], "since": seen.since,
                "components": seen.generations[-1]["components"],
            },
            "diversity": seen.generations[-1]["diversity"] if seen.generations else None,
            "level": seen.generations[-1]["level"] if seen.generations else None,
            "thresholds": {"low": 0.3, "reseed": 0.2}, "generations": seen.generations,
            "techniques": sorted(techniques.values(), key=lambda t: t["technique"]),
            "genes": [{"gene": g, "correlation": round(0.7 - 0.25 * i, 3), "candidates": 40}
                      for i, g in enumerate(GENES)] if story.free and seen.generations else [],
            "front": _front(seen) if story.strategy.startswith("nsga2") else None,
            "stages": {"interpolation": 0.61, "task arithmetic": 0.992, "selection": 0.996},
            "cost": {"flops_per_token": 2_686_976, "bytes": 5_001_728},
            "spent": {"evaluations": seen.evaluations, "items": seen.evaluations * 292,
                      "device_seconds": seen.evaluations * 5.3,
                      "wall_seconds": place * 4.1},
            "test": {"score": 1.0151, "quality": 1.0215, "components": {"perplexity": 7.1015,
                     "accuracy": 0.4432, "domains": {"code": 58.3, "math": 3.03, "data": 2.03}}}
            if done else None,
            "rivals": _rivals() if done else [],
            "verdict": {"sentence": "The champion beats every source and the base on the test slice. "
                        "It is level with the best static merge (task-arithmetic-0.5): the "
                        "difference is within the noise.", "beats_sources_and_base": True}
            if done else None,
            "lineage_digest": digest(name, "lineage") if done else None,
        }  # fmt: skip

    def cut(self, name: str, at: int) -> str | None:
        """Why a history cannot be looked at there; None where it can."""
        events = self.stories[name].events
        if at < len(events) and events[at]["type"] in CLOSING:
            start = end = at
            while events[start]["type"] in CLOSING:
                start -= 1
            while end < len(events) and events[end]["type"] in CLOSING:
                end += 1
            return (
                f"event {at} is in the middle of one append, events {start + 1} to {end}, which "
                f"close a generation together: take {start} or {end}."
            )
        return None

    def population(self, name: str, at: int | None, generation: str | None) -> dict[str, Any]:
        seen = Seen(self.stories[name], at or self.stories[name].visible)
        if generation == "all":
            return {"generation": "all", "rows": seen.candidates}
        newest = max((r["generation"] for r in seen.candidates), default=None)
        wanted = int(generation) if generation else newest
        rows = [r for r in seen.candidates if r["generation"] == wanted]
        return {"generation": wanted, "rows": rows}

    def lineage(self, name: str, candidate: str, at: int | None) -> dict[str, Any]:
        seen = Seen(self.stories[name], at or self.stories[name].visible)
        known = {row["recipe_id"]: row for row in seen.candidates}
        wanted = (
            seen.champion["recipe_id"] if candidate == "champion" and seen.champion else candidate
        )
        nodes: dict[str, dict[str, Any]] = {}
        edges: list[dict[str, str]] = []
        todo = [wanted] if wanted in known else []
        named = {digest(n): n for n in SOURCES}
        while todo:
            id_ = todo.pop()
            if id_ in nodes:
                continue
            row = known.get(id_)
            nodes[id_] = {
                "id": id_, "name": named.get(id_) or (row or {}).get("pipeline"),
                "kind": row["kind"] if row else "source", "generation": row and row["generation"],
                "slot": row and row["slot"], "score": row and row["selection"],
                "parents": row["parents"] if row else [], "ancestor": True,
                "champion": id_ == wanted,
            }  # fmt: skip
            for parent in row["parents"] if row else []:
                edges.append({"from": parent, "to": id_})
                todo.append(parent)
        ancestors = set(nodes)
        for row in seen.candidates:
            if nodes and row["recipe_id"] not in nodes and row["parents"] and all(
                p in ancestors for p in row["parents"]
            ):  # fmt: skip
                nodes[row["recipe_id"]] = {
                    "id": row["recipe_id"], "name": row["pipeline"], "kind": row["kind"],
                    "generation": row["generation"], "slot": row["slot"],
                    "score": row["selection"], "parents": row["parents"], "ancestor": False,
                    "champion": False,
                }  # fmt: skip
                edges += [{"from": p, "to": row["recipe_id"]} for p in row["parents"]]
        return {"candidate": wanted, "nodes": list(nodes.values()), "edges": edges}

    def candidate(self, name: str, id_: str) -> dict[str, Any]:
        story = self.stories[name]
        seen = Seen(story, story.visible)
        if id_ == "champion" and seen.champion:
            id_ = seen.champion["recipe_id"]
        row = next((r for r in seen.candidates if r["recipe_id"] == id_), None)
        if row is None:
            return {"recipe_id": id_, "kind": "source", "recipe": {"kind": "source", "digest": id_},
                    "parents": [], "children": [], "evaluations": []}  # fmt: skip
        children = [r["recipe_id"] for r in seen.candidates if id_ in r["parents"]]
        recipe = {"kind": row["kind"], "pipeline": row["pipeline"], "inputs": row["parents"],
                  "genes": row["genes"], "seed": 8308352748119273598}  # fmt: skip
        yaml = "merge_method: ties\nmodels:\n" + "".join(
            f"  - model: {p[:12]}\n    parameters:\n      weight: 0.33\n" for p in row["parents"]
        )
        return {**row, "recipe": recipe, "children": children, "yaml": yaml,
                "name": row["pipeline"], "what": f"{row['kind']} {row['pipeline']}",
                "where": f"generation {row['generation']}/{row['slot']}", "evaluations": [
                    {"slice": s, "generation": row["generation"] if s == "search" else None,
                     "fitness": row[s], "quality": row[s], "stopped": None}
                    for s in ("search", "selection")]}  # fmt: skip

    def layers(self, name: str) -> dict[str, Any]:
        chance = random.Random(name)
        layers = ["embedding", *[f"block {i}" for i in range(6)], "rest", "head"]
        rows = [
            {"layer": layer, "coefficients": [chance.uniform(-0.15, 0.9) for _ in SOURCES],
             "explained": 0.6 + 0.35 * chance.random(), "moved": 0.5 + chance.random()}
            for layer in layers
        ]  # fmt: skip
        return {"status": "ready", "candidate": "champion", "sources": SOURCES, "rows": rows}

    def compare(self, a: str, b: str) -> dict[str, Any]:
        sides = [Seen(self.stories[n], self.stories[n].visible) for n in (a, b)]
        rows = []
        for number in range(max(len(s.generations) for s in sides)):
            row: dict[str, Any] = {"generation": number}
            for which, side in zip("ab", sides, strict=True):
                g = side.generations[number] if number < len(side.generations) else None
                row[which] = g and g["champion"]
                row[f"diversity_{which}"] = g and g["diversity"]
            rows.append(row)
        same = self.stories[a].strategy == self.stories[b].strategy
        mine, theirs = self.run(a, None)["config"], self.run(b, None)["config"]
        return {
            **{w: {"run": s.story.run, "place": s.place, "status": s.status,
                   "generation": len(s.generations) - 1 if s.generations else None}
               for w, s in zip("ab", sides, strict=True)},
            "settings": {k: [mine[k], theirs[k]] for k in mine if mine[k] != theirs[k]},
            "sources": [], "champion": [self.run(n, None)["champion"] for n in (a, b)],
            "candidates": {"only_a": [], "only_b": [], "both": 0}, "generations": rows,
            "test": [1.0151 if s.status == "completed" else None for s in sides],
            "comparable": None if same else "they were measured on other data",
            "same_lineage": False,
        }  # fmt: skip


def _again(story: Story) -> dict[str, Any]:
    names = ("run", "seed", "strategy", "generations", "size", "owner", "labels", "begun", "ending")
    return {n: getattr(story, n) for n in names} | {
        "visible": story.visible if story.ending == "running" else 0
    }


def _row(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    status = chance.choice(["completed"] * 6 + ["failed", "cancelled"])
    length = chance.randint(3, 30)
    curve = [0.98 + 0.03 * (1 - 0.8**i) + chance.gauss(0, 0.004) for i in range(length)]
    return {
        "run": f"2026{10 - number // 3000:02d}{28 - number // 120 % 28:02d}-{digest(number)[:6]}",
        "status": status, "owner": chance.choice(["ada", "grace", "linus"]), "priority": 0,
        "labels": chance.sample(["demo", "big-gpu", "nightly"], chance.choice([0, 0, 1])),
        "submitted_at": stamp(-900.0 * number), "updated_at": stamp(-900.0 * number + 700),
        "parent": None, "generation": length - 1, "champion": digest(number, "champion"),
        "score": max(curve) - 0.004, "version": 20 * length,
        "device_seconds": 60.0 * length * (0.5 + chance.random()), "curve": curve,
    }  # fmt: skip


def _source(name: str) -> dict[str, Any]:
    return {"name": name, "recipe_id": digest(name), "digest": digest(name, "weights"),
            "path": f"/models/{name}"}  # fmt: skip


def _front(seen: Seen) -> dict[str, Any] | None:
    rows = [r for r in seen.candidates if r["perplexity"] is not None]
    points = sorted(((-r["perplexity"], r["accuracy"], r["recipe_id"]) for r in rows), reverse=True)
    front, best = [], -1.0
    for x, y, id_ in points:
        if y > best:
            best = y
            front.append({"candidate": id_, "objectives": [x, y]})
    if not front:
        return None
    return {"objectives": ["perplexity", "accuracy"], "candidates": front,
            "reference": [-7.7, 0.42], "hypervolume": 0.0213}  # fmt: skip


def _rivals() -> list[dict[str, Any]]:
    table = [
        ("base", "base", 0.9757, 7.644, 0.0393, 0.0265, 0.0490),
        ("code", "source", 0.9882, 7.433, 0.0268, 0.0167, 0.0355),
        ("math", "source", 0.9848, 7.503, 0.0303, 0.0162, 0.0410),
        ("data", "source", 1.0000, 7.362, 0.0151, 0.0055, 0.0249),
        ("mean", "baseline", 1.0113, 7.135, 0.0038, -0.0054, 0.0101),
        ("task-arithmetic-0.5", "baseline", 1.0163, 7.075, -0.0013, -0.0073, 0.0033),
    ]
    return [
        {"name": n, "kind": k, "score": s, "perplexity": p, "accuracy": 0.44, "lead": lead,
         "low": low, "high": high, "beaten": low > 0, "worse": high < 0}
        for n, k, s, p, lead, low, high in table
    ]  # fmt: skip


def _models(world: World) -> list[dict[str, Any]]:
    found = [
        {"id": digest(n)[:16], "name": n, "kind": "base" if n == "base" else "source",
         "digest": digest(n, "weights"), "bytes": 5_001_728, "parameters": 1_150_080,
         "metrics": {}, "lineage": [], "run": None, "path": f"/models/{n}",
         "registered_at": stamp(i)}
        for i, n in enumerate(["base", *SOURCES])
    ]  # fmt: skip
    for story in world.stories.values():
        champion = Seen(story, story.visible).champion
        if champion:
            found.append(
                {"id": champion["recipe_id"][:16], "name": f"champion of {story.run}",
                 "kind": "champion", "digest": champion["digest"], "bytes": 5_001_728,
                 "parameters": 1_150_080, "metrics": {"test": champion["selection"]},
                 "lineage": [digest(n)[:16] for n in SOURCES], "run": story.run, "path": None,
                 "registered_at": stamp(story.clock)}
            )  # fmt: skip
    return found
