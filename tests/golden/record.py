"""Write a golden log: `python -m tests.golden.record NAME`. A recorded one is never written again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from agent_forge.events import Event, New
from agent_forge.evomerge.run import events
from agent_forge.runs.kinds.decide import open_tasks, part_key
from agent_forge.runs.record.events import MemoryPeaked, PartDone
from testing.worlds.fake_world import RUN, World, all_alike, small
from tests.golden.test_golden import lineage_of

FOLDER = Path(__file__).parent


def worlds() -> list[World]:
    """Runs that have every type of event between them."""
    plain, alike, broken, ruled = World(), World(small(), sketcher=all_alike), World(), World()
    plain.fail("start", 1)
    rule(ruled)
    for world in (plain, alike):
        world.run()
    assert plain.state.champion
    exported = events.Exported(recipe_id=plain.state.champion, folder="champion", digest="0" * 64)
    ask(plain, exported)
    for attempt in (1, 2, 3):
        broken.fail("start", attempt)
    broken.run()
    watched = World(small(gate_perplexity=0.8))
    watched.run()
    searched = [
        World(small(strategy=name, population_size=5, max_items=600, generations=9))
        for name in ("auto", "tournament", "cma-es", "nsga2")
    ]
    searched += [
        World(small(strategy=name, population_size=5, generations=3, path_repeats=2, **own))
        for name, own in (("cma-es", {}), ("nsga2", {}), ("tournament", {"niching": "both"}))
    ]
    for world in searched:
        world.run()
    poison = [poisoned("worst-fitness"), poisoned("fail")]
    return [plain, alike, broken, ruled, *poison, watched, *searched, imported()]


def imported() -> World:
    """A run that was taken in from an archive, and resumed by who took it in."""
    world = World()
    world.run_until(lambda state: state.generation == 1)
    ask(world, events.Imported(owner="bob", head=world.state.head))
    ask(world, events.Resumed())
    world.run()
    return world


def started_together() -> World:
    """A run in whose evaluations questions of all lengths, and many replies, share forward passes."""
    world = World()
    world.run()
    assert world.state.started
    assert world.state.started.together
    assert world.state.started.many_replies
    return world


def of_schema_2() -> World:
    """A run whose fitness asks for all skills, on the device that it gets."""
    world = World(small(skills="geometric", device="auto"))
    world.run()
    return world


def methods() -> list[World]:
    """Runs whose recipes may have every method, by strategies that make each of their events."""
    small_runs = {"population_size": 5, "generations": 3, "max_items": 600}
    worlds = [World()]
    species = ["tsv_m", "iso_c"]
    worlds += [
        World(small(strategy=name, species=species, **small_runs)) for name in ("cma-es", "nsga2")
    ]
    for world in worlds:
        world.run()
    return worlds


def described() -> World:
    """A run that is named when it is submitted, while it runs and after its end."""
    world = World()
    ask(world, events.Described(name="first-try", key="nightly"))
    world.run_until(lambda state: state.generation == 1)
    ask(world, events.Described(note="with care", tags=("paper", "best")))
    world.run()
    ask(world, events.Described(name="best"))
    return world


def divided() -> World:
    """A run with a task in three parts, which two devices record in another order."""
    world = World()
    world.run_until(lambda state: state.generation == 1 and bool(open_tasks(state)))
    task = open_tasks(world.state)[0].key
    for begin, end in ((0, 2), (4, 5), (2, 4)):
        part = {"task": task, "begin": begin, "end": end, "of": 5, "digest": f"{begin}" * 64}
        event = PartDone(**part, seconds=30.0)
        world.append([New(event, part_key(f"{RUN}/{task}", begin))])
    world.run()
    return world


def measured_memory() -> World:
    """A run whose tasks took more and more memory, which a device notes beside what it did."""
    world = World()
    for generation, peak in enumerate((700 << 20, 3 << 30)):
        world.run_until(lambda state, n=generation: state.generation == n and bool(open_tasks(state)))
        event = MemoryPeaked(task=open_tasks(world.state)[0].key, bytes=peak)
        world.append([New(event, f"{RUN}/{event.task}/memory/{peak}")])
    world.run()
    return world


def poisoned(quarantine: events.Quarantine) -> World:
    """A run with tasks that no process survives."""
    world = World(quarantine=quarantine)
    world.poison("build/1/0", "baseline/mean")
    return world


def rule(world: World) -> None:
    """Everything that users may ask of a run."""
    for event in (
        events.Paused(reason="lunch"),
        events.Resumed(reason="back"),
        events.PriorityChanged(priority=3, reason="a paper"),
    ):
        ask(world, event)
    for attempt in (1, 2, 3):
        world.fail("start", attempt)
    world.step()
    ask(world, events.Retried(reason="disk was full"))
    world.run_until(lambda state: state.generation == 1)
    ask(world, events.Cancelled(reason="enough"))


def ask(world: World, event: Event) -> None:
    """Append a control event under the key that `worker.commands.control` gives it."""
    world.append([New(event, f"{RUN}/{event.type}/{world.state.version + 1}")])


def main(name: str) -> None:
    """One file of rows a run, and one with what they fold to."""
    single = {
        "imported": imported,
        "schema-1-described": described,
        "schema-2": of_schema_2,
        "schema-1-parts": divided,
        "schema-1-memory": measured_memory,
        "schema-2-started": started_together,
        "schema-3-started": started_together,
    }
    made = methods() if name == "schema-2-methods" else None
    made = [single[name]()] if name in single else made or worlds()
    for number, world in enumerate(made, start=1):
        path = FOLDER / f"{name}-{number}.jsonl"
        if path.exists():
            raise SystemExit(f"{path} is recorded already: choose another name")
        rows = [row._asdict() if hasattr(row, "_asdict") else vars(row) for row in world.rows]
        lines = [json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        state = world.state
        told = {
            "status": state.status,
            "champion": state.champion,
            "generations": len(state.generations),
            "candidates": len(state.candidates),
            "lineage_digest": lineage_of(state),
            "head": state.head,
        }
        path.with_suffix(".json").write_text(json.dumps(told, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
