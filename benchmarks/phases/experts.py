"""Experts: the search beside random mixtures, and vectors beside adapters of as many parameters.

    python -m benchmarks.phases.experts search --models FOLDER --out FOLDER [--seeds 0,1,2]
        [--set KEY=VALUE …]
    python -m benchmarks.phases.experts cost --models FOLDER --out FOLDER [--seeds 0]
        [--set KEY=VALUE …]
    python -m benchmarks.phases.experts trainings --models FOLDER --out FOLDER [--seeds 0]
        [--set KEY=VALUE …]
    python -m benchmarks.phases.experts adapters --models FOLDER --out FOLDER [--seeds 0]
        [--set KEY=VALUE …] [--rates 0.03,0.1,0.3] [--lora-rates 0.004,0.013,0.04]

FOLDER of `--models` is that of `forge cognate`: a base, and specialists that mixtures may contain;
`{seed}` in it stands for the seed, so that each has its own.
`search` carries out an experts run for every seed, in `--out`, and prints as Markdown what came out:
gains and drift with intervals, hypervolumes at equal evaluations, dispatch, time for a mixture. A run
that was stopped goes on. `cost` carries out a run of short trainings up to the end of its search, and
prints the processor time of a mixture, decisions and log included; `evaluations` is 70 in each arm
unless `--set` says otherwise. `trainings` trains experts in each of the three ways, without a search:
a run for each way and seed. Its FOLDER may be a single model; `families` are set by `--set`.
`adapters` trains for each domain an expert, and LoRA of rank 1 on the modules whose adapters have
nearest to as many parameters, on the same windows, at every rate. The best rate of each by the
selection slice is measured on the test slice: its gain in its own domain and in the others.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.measures import bootstrap
from agent_forge.evaluation.measures.perplexity import score_windows
from agent_forge.phases.experts import figures, recipes
from agent_forge.phases.experts.recipes import Scored
from agent_forge.phases.experts.script import Experts
from agent_forge.phases.experts.search.generations import Search
from agent_forge.phases.experts.settings import Training
from agent_forge.phases.experts.work import Context
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.making.making import MakingState
from agent_forge.weights import svf
from agent_forge.weights.recipes import Algorithm, Train
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Tensors, Weights
from agent_forge.weights.training import complete
from agent_forge.weights.training.loop import segment
from agent_forge.weights.training.models import modules
from agent_forge.worker.commands import submit
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.tasks import runner
from benchmarks.common import machine

#: Domain → Σ −log p of its windows, and their bytes.
Measured = Mapping[str, tuple[Sequence[float], Sequence[int]]]


def submitted(
    asked: argparse.Namespace, seed: int, name: str = "seed", **settings: Any
) -> tuple[Home, str]:
    """Submit a run of a seed unless it is there; return home and name."""
    home, run = Home(Path(asked.out) / "home"), f"{name}-{seed}"
    folder = Path(asked.models.replace("{seed}", str(seed)))
    merges = sorted(p.parent for p in folder.glob("*/config.json") if p.parent.name != "base")
    alone = (folder / "config.json").is_file()
    model = folder if alone else folder / "base"
    given = {"model": [str(model)], "merges": [] if alone else [str(place) for place in merges]}
    own = {key: _value(text) for key, _, text in (one.partition("=") for one in asked.set)}
    every = {"context": 128, "seed": seed, **own, **settings}
    made = submit.plan(RunRequest("experts", every, given))
    with closing(home.open_store()) as store:
        if not list(store.read(f"experts/{run}")):
            commands_submit.submit(store, made, run)
    return home, run


def finished(
    asked: argparse.Namespace, seed: int, name: str = "seed", **settings: Any
) -> tuple[Home, MakingState]:
    """Return a run of a seed that has completed, carried out or gone on with here."""
    home, run = submitted(asked, seed, name, **settings)
    with closing(home.open_store()) as store:
        runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)
        return home, repository.load(store, run)


def _value(text: str) -> Any:
    """Return a setting's value: JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def percent(one: Any) -> str:
    """Return a relative figure in percent, with its interval if it has one."""
    if one.low is None:
        return f"{one.value:.4g}"
    return f"{one.value:+.2%} [{one.low:+.2%}, {one.high:+.2%}]"


# ---- search ------------------------------------------------------------------------------------


def search(asked: argparse.Namespace) -> None:
    """Carry out a run for each seed; print a table of all."""
    columns: dict[int, dict[str, str]] = {}
    for seed in map(int, asked.seeds.split(",")):
        _, state = finished(asked, seed)
        run, done = Experts().run(state), state.completed
        scores = [event for event in state.answers.values() if isinstance(event, Scored)]
        seconds, count = sum(e.seconds for e in scores), sum(len(e.items) for e in scores)
        rows = {"result": done.chosen}
        rows |= {f"{arm}: gain": percent(one) for arm, one in figures.gains(run).items()}
        rows |= {name: percent(one) for name, one in done.figures.items()}
        rows["stopped early"] = f"{_stopped(state):.0%}"
        rows["ms a mixture"] = f"{1000 * seconds / count:.0f}" if count else ""
        rows["seconds of all tasks"] = f"{state.spent.device:,.0f}"
        columns[seed] = rows
        for arm, domains in figures.by_domain(run).items():
            line = ", ".join(f"{domain} {percent(one)}" for domain, one in domains.items())
            print(f"seed {seed}, {arm}: {line}", flush=True)
    print(f"\n{machine()}\n\n| | {' | '.join(f'seed {seed}' for seed in columns)} |")
    print(f"|---|{'---|' * len(columns)}")
    for name in dict.fromkeys(name for rows in columns.values() for name in rows):
        print(f"| {name} | {' | '.join(rows.get(name, '') for rows in columns.values())} |")


def searches(state: MakingState) -> Mapping[str, Search]:
    """Return arm → its search, as far as it is known."""
    return Experts().run(state).known.get("searches", {})


def _stopped(state: MakingState) -> float:
    """Return the share of mixtures that were given up."""
    every = [event for search in searches(state).values() for event in search.ended]
    last = [search.ended[-1] for search in searches(state).values() if search.ended]
    return sum(e.stopped for e in every) / max(1, sum(e.evaluations for e in last))


# ---- cost --------------------------------------------------------------------------------------


def cost(asked: argparse.Namespace) -> None:
    """Carry a run out up to the end of its search; print processor time by arm."""
    own = {one.partition("=")[0] for one in asked.set}
    wanted = {"tokens": 2_048, "lora": False, "evaluations": 70}
    short = {key: value for key, value in wanted.items() if key not in own}
    for seed in map(int, asked.seeds.split(",")):
        home, run = submitted(asked, seed, **short)
        state, marks = searched(home, run)
        (began, before), (ended, after) = marks[0], marks[-1]
        each = (ended - began) / (after - before)
        print(f"{machine()}; seed {seed}: {after - before} mixtures of all arms")
        print(f"{1000 * each:.0f} ms of processor time for each; 5,000: {5000 * each / 60:.1f} min")
        print(f"given up early: {_stopped(state):.0%}; arms: {', '.join(searches(state))}")


def searched(home: Home, run: str) -> tuple[MakingState, list[tuple[float, int]]]:
    """Carry a run on to the end of its search; return the state, and processor seconds by mixtures."""
    marks: list[tuple[float, int]] = []
    with closing(home.open_store()) as store:
        seen = [repository.load(store, run)]

        def watch(state: MakingState, rows: Sequence[Any]) -> None:
            seen[0] = state
            if any(row.type in ("generation_bred", "scored") for row in rows):
                events = [e for e in state.answers.values() if isinstance(e, Scored)]
                marks.append((time.process_time(), sum(len(e.items) for e in events)))

        def over() -> bool:
            if seen[0].started is None:
                return False
            arms = searches(seen[0]).values()
            return bool(arms) and not any(arm.size(len(arm.ended)) for arm in arms)

        runner.WorkerProcess(store, Artifacts.of(home), watch, over).run(run)
        return seen[0], marks


# ---- trainings ---------------------------------------------------------------------------------


def trainings(asked: argparse.Namespace) -> None:
    """Train experts in every way; print what each gains in its own domain, and solves of its family."""
    print(f"{machine()}\n")
    print("| seed | trained by | expert of | own domain | others | solved | LoRA: own | solved |")
    print("|---|---|---|---|---|---|---|---|")
    for seed in map(int, asked.seeds.split(",")):
        for train in get_args(Training):
            _, state = finished(asked, seed, train, evaluations=0, train=train)
            for domain in Experts().run(state).known["experts"]:
                row = _trained(state, domain)
                print(f"| {seed} | {train} | {domain} | {' | '.join(row)} |", flush=True)


def _trained(state: MakingState, domain: str) -> list[str]:
    """Return what an expert gains and solves, and the adapters beside it."""
    run = Experts().run(state)
    gains, solved = figures.by_domain(run), figures.solved_shares(figures.solved(run))
    told = list[str]()
    for start in (recipes.ONLY, recipes.LORA):
        arm = f"{start}{domain}"
        if arm not in gains:
            continue
        told.append(percent(gains[arm][domain]))
        if start == recipes.ONLY:
            others = [one.value for other, one in gains[arm].items() if other != domain]
            told.append(f"{sum(others) / len(others):+.2%}")
        share = (
            [solved[name][domain] for name in (recipes.GIVEN, arm)]
            if domain in solved.get(arm, {})
            else []
        )
        told.append(" → ".join(f"{one.value:.0%}" for one in share))
    return told


# ---- adapters ----------------------------------------------------------------------------------


def adapters(asked: argparse.Namespace) -> None:
    """Train experts and adapters at every rate; print a table."""
    print(f"{machine()}\n")
    print("| seed | domain | arm | parameters | rate | own domain | others | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for seed in map(int, asked.seeds.split(",")):
        home, state = finished(asked, seed, evaluations=0, lora=True)
        context = Context.opened(state, Artifacts.of(home))
        base = Tensors(context.settings, context.weights(context.recipes[recipes.GIVEN]))
        model = ResidentModel.from_module(modules.build(base))
        given = {on: measured(context, model, base.weights, on) for on in (CHOOSING, TEST)}
        for domain in recipes.trainable(state.submitted, state.started):
            for row in _rows(asked, context, model, base, given, domain):
                print(f"| {seed} | {domain} | {' | '.join(row)} |", flush=True)


def _rows(
    asked: argparse.Namespace,
    context: Context,
    model: ResidentModel,
    base: Tensors,
    given: Mapping[str, Measured],
    domain: str,
) -> Iterator[list[str]]:
    """Yield a row for the expert of a domain, and one for its adapters."""
    state = context.state
    expert = recipes.expert(state.submitted, state.started, domain)
    numbers, own = state.started.numbers, state.started.adapters
    assert own is not None
    arms: dict[str, tuple[int, str, Callable[[float], Weights]]] = {
        "vectors": (numbers, asked.rates, lambda rate: vectors(context, base, expert, rate)),
        "LoRA, rank 1": (
            own.numbers,
            asked.lora_rates,
            lambda rate: adapted(context, base, domain, rate),
        ),
    }
    for arm, (size, rates, trained) in arms.items():
        began, best = time.monotonic(), dict[float, tuple[float, Weights]]()
        for rate in map(float, rates.split(",")):
            weights = trained(rate)
            found = measured(context, model, weights, CHOOSING)
            best[rate] = gain(found, given[CHOOSING], domain)[0], weights
        rate = max(best, key=lambda one: best[one][0])
        found = measured(context, model, best[rate][1], TEST)
        told = {d: "{:+.2%} [{:+.2%}, {:+.2%}]".format(*gain(found, given[TEST], d)) for d in found}
        others = ", ".join(f"{d} {text}" for d, text in told.items() if d != domain)
        seconds = (time.monotonic() - began) / len(best)
        yield [arm, f"{size:,}", f"{rate:g}", told[domain], others, f"{seconds:.0f}"]


def measured(context: Context, model: ResidentModel, weights: Weights, on: str) -> Measured:
    """Return what a model has on the windows of a slice."""
    model.load(weights)
    return {
        domain: (score_windows(model, packed.windows)[0], packed.bytes)
        for domain, packed in sorted(context.held_out(on).items())
    }


def gain(found: Measured, given: Measured, domain: str) -> tuple[float, float, float]:
    """Return the relative gain in a domain, and its 95 % interval."""
    (own, sizes), (base, _) = found[domain], given[domain]
    rate = sum(base) / sum(sizes)
    one = bootstrap.rates(base, own, sizes, "experts", domain)
    return one.difference / rate, one.low / rate, one.high / rate


def _with(recipe: Train, rate: float, **changes: Any) -> Train:
    """Return a training with another peak of its rate."""
    params = {**recipe.schedule.params, "peak": rate}
    schedule = Algorithm(name=recipe.schedule.name, params=params)
    return complete(recipe.model_copy(update={"schedule": schedule, **changes}))


def vectors(context: Context, base: Tensors, expert: Train, rate: float) -> Weights:
    """Return the base with an expert."""
    factored = Tensors(context.settings, context.weights(context.recipes[recipes.SVD]))
    start = Tensors(context.settings, context.weights(context.recipes[recipes.ONES]))
    inputs = {"of": base, "svd": factored}
    recipe = _with(expert, rate)
    made = segment(recipe, start, None, context.streams, 0, recipe.upto, inputs=inputs)
    change = svf.of_vectors(factored.weights, made.weights)
    return svf.added(base.weights, [change], [1.0])


def adapted(context: Context, base: Tensors, domain: str, rate: float) -> Weights:
    """Return the base with adapters, trained on the windows that the expert reads."""
    recipe = _with(recipes.lora(context.state.submitted, context.state.started, domain), rate)
    return segment(recipe, base, None, context.streams, 0, recipe.upto).weights


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, do, seeds in (
        ("search", search, "0,1,2"),
        ("cost", cost, "0"),
        ("trainings", trainings, "0"),
        ("adapters", adapters, "0"),
    ):
        command = commands.add_parser(name)
        command.add_argument("--models", required=True)
        command.add_argument("--out", required=True)
        command.add_argument("--seeds", default=seeds)
        command.add_argument("--set", action="append", default=[])
        command.set_defaults(do=do)
        if name == "adapters":
            command.add_argument("--rates", default="0.03,0.1,0.3")
            command.add_argument("--lora-rates", default="0.004,0.013,0.04")
    asked = parser.parse_args()
    asked.do(asked)


if __name__ == "__main__":
    main()
