"""The demo and its benchmarks: models and search have one seed, and times are those of whole runs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evomerge.reports import report
from benchmarks.evomerge import demo_seeds, headline
from testing.worlds.fake_world import World, small

ROOT = Path(__file__).parents[3]
#: In the place of `forge`: writes down what it was asked, and a report where it is to train.
FORGE = """#!/bin/sh
echo "$@" >> "$DEMO/asked"
[ "$1" = cognate ] || exit 0
mkdir -p "$3"
printf '{\\n  "seed": %s,\\n  "run": "key-1"\\n}' "$5" > "$3/cognate.json"
"""


def demo(folder: Path, seed: str) -> tuple[int, str, list[str]]:
    """Run the script; its exit status, what it said, and the commands that it gave since."""
    forge = folder / "venv" / "bin" / "forge"
    forge.parent.mkdir(parents=True, exist_ok=True)
    forge.write_text(FORGE)
    forge.chmod(0o755)
    (folder / "asked").write_text("")
    env = {**os.environ, "VENV": str(folder / "venv"), "DEMO": str(folder), "SEED": seed}
    done = subprocess.run(
        ["sh", "examples/demo.sh"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    asked = [line.split()[0] for line in (folder / "asked").read_text().splitlines()]
    return done.returncode, done.stdout + done.stderr, asked


def test_the_demo_searches_with_the_seed_of_its_models(tmp_path: Path) -> None:
    """Another seed searched over the models of the first, and nothing said so."""
    assert demo(tmp_path, "1")[::2] == (0, ["cognate", "evo"])
    assert demo(tmp_path, "1")[::2] == (0, ["evo"])
    assert "--base-models key-1:code,key-1:math,key-1:data --base-model key-1:base" in (
        (tmp_path / "asked").read_text()
    )
    for other in ("0", "11"):
        status, said, asked = demo(tmp_path, other)
        assert (status, asked) == (2, [])
        assert f"another seed than {other}" in said
        assert f"SEED={other} DEMO=demo-{other} make demo" in said


def minute_by_minute(world: World) -> list[Any]:
    """The log with a minute between any two events."""
    times = [f"2026-01-01T{i // 60:02d}:{i % 60:02d}:00.000000+00:00" for i in range(len(world.rows))]
    return [r._replace(recorded_at=t) for r, t in zip(world.rows, times, strict=True)]


def test_an_interrupted_headline_takes_its_time_from_the_log() -> None:
    """It was that of the last start alone: too little, and time elsewhere was negative."""
    world = World(small())
    world.run()
    rows = minute_by_minute(world)
    lines = headline.lines(world.state, rows, None, 1.0)
    text = "\n".join(lines)
    assert f"by the clock {report.wall_seconds(rows) / 60:.1f} min" in text
    assert "interrupted: time is from the first event to the last" in text
    assert "-" not in text.split("elsewhere")[1].splitlines()[0]
    assert "interrupted" not in "\n".join(headline.lines(world.state, rows, 99.0, 1.0))


def seed_result(**more: Any) -> dict[str, Any]:
    return {
        "rivals": [{"name": "base", "lead": 0.1, "low": 0.0, "high": 0.2}],
        "verdict": {"beats_sources_and_base": True},
        "evaluation": None,
        **more,
    }


def test_minutes_are_those_of_seeds_that_were_done_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_seeds, "demo", lambda folder, seed: None)
    monkeypatch.setattr(demo_seeds, "result", lambda home, seed: seed_result(seed=seed))
    (tmp_path / "1").mkdir()
    again, fresh = (demo_seeds.measured(tmp_path / str(seed), seed) for seed in (1, 2))
    assert again["interrupted"]
    assert "wall_seconds" not in again
    assert not fresh["interrupted"]
    old = seed_result(seed=0, wall_seconds=600.0, processor_seconds=1200.0)
    told = demo_seeds.table([json.loads(json.dumps(one)) for one in (old, again)])[-1]
    assert "clock 10.0 to 10.0, of processor time 20.0 to 20.0, of 1 seeds" in told
    assert "no minutes" in demo_seeds.table([again])[-1]
