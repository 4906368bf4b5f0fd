"""Skills that merges hold, for several seeds: three tasks of letters that a program checks.

    python -m benchmarks.evomerge.skills --out FOLDER [--seeds 0-9] [--asks geometric,mean,worst,pooled]

Each seed draws its own words and trains, by `forge cognate`, a base on prose and some of every task
(it knows the formats and solves a part of the problems) and a specialist of each task. `forge merge`
writes static merges; `forge evo` searches once for each setting `skills` of the fitness; `forge score`
counts the problems of the test slice that each model solves. No word of a task is in two slices.

`forge cognate` refuses a specialist that is not the best on its own text in bits per byte. Most bits of
these texts are their random letters, so a specialist that solves more problems may be refused. The
models of such a run are taken from its log all the same, and the table of the seed says so.

A finished seed is skipped, and an interrupted one goes on: its minutes are not counted. Results are
lines of FOLDER/results.jsonl, and the tables are printed at the end. Models stay in FOLDER/SEED.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from agent_forge.runs.home import Home
from agent_forge.weights.storage.model_origin import Finder
from benchmarks.common import machine
from benchmarks.evomerge import skills_data
from benchmarks.evomerge.demo_seeds import seeds
from benchmarks.evomerge.skills_data import PROSE, TASKS
from benchmarks.evomerge.skills_tables import seed_table, summary

FORGE = Path(sys.prefix) / "bin" / "forge"

#: Words of `forge cognate` if a specialist is not the best on its own text.
REFUSED = "it is no specialist"
#: Share of prose in the common mix; the tasks have equal parts of the rest.
PROSE_SHARE = 0.4
#: Settings of the trainings that are not the preset's.
TRAINING: Mapping[str, Any] = {
    "batch": 8,
    "context": 64,
    "base_tokens": 600_000,
    "base_rate": 3e-3,
    "specialist_tokens": 80_000,
    "specialist_rate": 7e-4,
}
#: Settings of the searches, beside `skills`: what the models solve decides.
SEARCH: Mapping[str, Any] = {
    "search_windows": 8,
    "search_questions": 0,
    "search_problems": 40,
    "context": 64,
    "fitness_weights": {"perplexity": 0.1, "accuracy": 0.9, "speed": 0.0, "memory": 0.0},
}
ASKS = ("geometric", "mean", "worst", "pooled")

#: Static merge → mergekit's method, parameters of a model, parameters of the merge.
STATIC: Mapping[str, tuple[str, dict[str, float], dict[str, Any]]] = {
    "average": ("linear", {"weight": 1.0}, {}),
    "task-arithmetic-0.3": ("task_arithmetic", {"weight": 0.3}, {"normalize": False}),
    "task-arithmetic-0.5": ("task_arithmetic", {"weight": 0.5}, {"normalize": False}),
    "task-arithmetic-0.7": ("task_arithmetic", {"weight": 0.7}, {"normalize": False}),
    "task-arithmetic-1": ("task_arithmetic", {"weight": 1.0}, {"normalize": False}),
    "ties-0.2": ("ties", {"weight": 1.0, "density": 0.2}, {"normalize": True}),
    "ties-0.5": ("ties", {"weight": 1.0, "density": 0.5}, {"normalize": True}),
    "dare-ties-0.5": ("dare_ties", {"weight": 1.0, "density": 0.5}, {"normalize": True}),
    "model-stock": ("model_stock", {}, {}),
}


class Commands:
    """The commands of one seed. Each is skipped if its result is there."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder.absolute()
        self._seed = seed

    def write_data(self) -> None:
        """Write the texts and problems."""
        if not (self.folder / "data").exists():
            skills_data.write(self.folder / "data-unfinished", self._seed)
            (self.folder / "data-unfinished").rename(self.folder / "data")

    def train(self, changes: Mapping[str, Any]) -> str | None:
        """Train base and specialists; `changes` are settings other than those of TRAINING.

        Return the reason if a specialist is refused; the models are written all the same. Raises
        CalledProcessError for other failures.
        """
        if (self.folder / "models").exists():
            file = self.folder / "refused.txt"
            return file.read_text("utf-8") if file.exists() else None
        mix = {PROSE: PROSE_SHARE} | dict.fromkeys(TASKS, (1 - PROSE_SHARE) / len(TASKS))
        settings = {"mix": mix, **TRAINING, **changes}
        values = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
        try:
            self._forge(
                *("cognate", "--out", "models", "--seed", self._seed, "--domains", ",".join(TASKS)),
                *("--data", "data", *(word for value in values for word in ("--set", value))),
            )
        except subprocess.CalledProcessError:
            last = (self.folder / "log.txt").read_text("utf-8").splitlines()[-1]
            if REFUSED not in last:
                raise
            reason = last[last.index("the ") : last.index(REFUSED) + len(REFUSED)]
            (self.folder / "refused.txt").write_text(reason, "utf-8")
            self._take_models()
            return reason
        return None

    def _take_models(self) -> None:
        """Copy the models of the run that was refused from its log's cache."""
        (run,) = json.loads(self._forge("runs", "--kind", "cognate", "--json"))
        find = Finder(Home(self.folder / "home"), lambda _text: None)
        for role in ("base", *TASKS):
            model = find(f"{run['run']}:{role}")
            assert model
            shutil.copytree(model.path, self.folder / "models-unfinished" / role)
        (self.folder / "models-unfinished").rename(self.folder / "models")

    def merge(self) -> None:
        """Write the static merges, by one file with a document for each."""
        if all((self.folder / self.place(name) / "config.json").exists() for name in STATIC):
            return
        documents = [self._document(name, *how) for name, how in STATIC.items()]
        file = self.folder / "static.yml"
        file.write_text("---\n".join(json.dumps(one) + "\n" for one in documents), "utf-8")
        self._forge("merge", file, "static", "--threads", 1, "--seed", self._seed)

    def search(self, ask: str, generations: int) -> None:
        """Search merges with a setting of `skills`."""
        if (self.folder / ask / "config.json").exists():
            return
        config = self.folder / f"{ask}.json"
        config.write_text(json.dumps({**SEARCH, "skills": ask}), "utf-8")
        self._forge(
            *("evo", "--base-models", ",".join(f"models/{task}" for task in TASKS)),
            *("--base-model", "models/base", "--data", "data", "--config", config),
            *("--gens", generations, "--seed", self._seed, "--output-dir", self.folder / ask),
            *("--key", f"skills-{ask}"),
        )

    def score(self, models: Sequence[str]) -> dict[str, dict[str, list[int]]]:
        """Return model → task → 1 for each problem of the test slice that is solved, else 0."""
        places = [self.folder / self.place(name) for name in models]
        options = ("--data", "data", "--context", SEARCH["context"], "--items", "--json")
        reports = json.loads(self._forge("score", *places, *options))
        return {
            name: {task: _solved(report["items"], task) for task in TASKS}
            for name, report in zip(models, reports, strict=True)
        }

    def place(self, model: str) -> Path:
        """Return where a model is, from the seed's folder."""
        return Path("static" if model in STATIC else "" if model in ASKS else "models") / model

    def _document(
        self, name: str, method: str, of_models: dict[str, float], whole: dict[str, Any]
    ) -> dict[str, Any]:
        models = self.folder / "models"
        base = {} if method == "linear" else {"base_model": str(models / "base")}
        sources = [{"model": str(models / task), "parameters": of_models} for task in TASKS]
        parameters = {"parameters": whole} if whole else {}
        shape = {"name": name, "merge_method": method, "dtype": "float32"}
        return {**shape, **base, "models": sources, **parameters}

    def _forge(self, *words: object) -> str:
        """Run a command; return what it wrote to stdout. Raises CalledProcessError."""
        env = {**os.environ, "FORGE_HOME": str(self.folder / "home")}
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            command = [str(FORGE), *map(str, words)]
            done = subprocess.run(
                command, cwd=self.folder, env=env, check=True, stdout=subprocess.PIPE, stderr=log
            )
            text = done.stdout.decode()
            log.write(text)
        return text


def _solved(items: Sequence[Mapping[str, Any]], task: str) -> list[int]:
    """Return the values of a task's problems, in the order of their names."""
    problems = [i for i in items if i["kind"] == "problem" and i["domain"] == task]
    return [int(item["value"]) for item in sorted(problems, key=lambda item: item["name"])]


def geometry(models: Path) -> dict[str, dict[str, float]]:
    """Return the norms of task vectors, relative to the base's norm, and their cosines."""
    from safetensors.numpy import load_file

    base = load_file(models / "base" / "model.safetensors")
    names = sorted(base)
    start = np.concatenate([np.float64(base[name]).ravel() for name in names])
    vectors = {}
    for task in TASKS:
        weights = load_file(models / task / "model.safetensors")
        vectors[task] = np.concatenate([np.float64(weights[n]).ravel() for n in names]) - start
    norms = {task: float(np.linalg.norm(vector)) for task, vector in vectors.items()}
    cosines = {
        f"{a},{b}": float(vectors[a] @ vectors[b]) / (norms[a] * norms[b])
        for a, b in combinations(TASKS, 2)
    }
    size = float(np.linalg.norm(start))
    return {"moved": {task: norm / size for task, norm in norms.items()}, "cosines": cosines}


def measure(folder: Path, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Carry out the commands of a seed; return its result, and its minutes if it is new."""
    interrupted = folder.exists()
    folder.mkdir(exist_ok=True)
    start, before = time.monotonic(), _processor()
    commands = Commands(folder, seed)
    commands.write_data()
    refused = commands.train(dict(options.set))
    commands.merge()
    for ask in options.asks:
        commands.search(ask, options.gens)
    solved = commands.score(["base", *TASKS, *STATIC, *options.asks])
    result: dict[str, Any] = {"seed": seed, "solved": solved, **geometry(folder / "models")}
    if refused is not None:
        result["refused"] = refused
    if not interrupted:
        result["wall_seconds"] = time.monotonic() - start
        result["processor_seconds"] = _processor() - before
    return result


def _processor() -> float:
    """Return the seconds of processor time of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _asks(text: str) -> list[str]:
    """Return the settings of `skills` that a user names. Raises ValueError."""
    names = text.split(",")
    if strange := set(names) - set(ASKS):
        raise ValueError(f"no setting of skills: {', '.join(sorted(strange))}")
    return names


def _change(text: str) -> tuple[str, Any]:
    """Return name and value of `NAME=JSON`."""
    name, _, value = text.partition("=")
    return name, json.loads(value)


def main() -> None:
    """Run the seeds that are not finished, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=seeds, default=list(range(10)))
    parser.add_argument("--asks", type=_asks, default=list(ASKS), help="settings of skills")
    parser.add_argument("--gens", type=int, default=4, help="generations of a search")
    parser.add_argument("--set", type=_change, action="append", default=[], help="of forge cognate")
    options = parser.parse_args()
    file: Path = options.out / "results.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    file.touch()
    results = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for seed in options.seeds:
        if seed in {result["seed"] for result in results}:
            continue
        print(f"seed {seed}: {options.out / str(seed)}/log.txt", file=sys.stderr, flush=True)
        result = measure(options.out / str(seed), seed, options)
        results.append(result)
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(result) + "\n")
        print("\n".join(seed_table(result)), file=sys.stderr, flush=True)
    chosen = sorted((r for r in results if r["seed"] in options.seeds), key=lambda r: r["seed"])
    print(f"{machine()}\n")
    for result in chosen:
        print("\n".join([*seed_table(result), ""]))
    print("\n".join(summary(chosen, list(STATIC), ASKS)))


if __name__ == "__main__":
    main()
