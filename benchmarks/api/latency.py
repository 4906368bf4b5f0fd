"""Latency of every GET of the API on a long log, at a steady rate of requests.

    python -m benchmarks.api.latency --home /tmp/long --runs 10000 --events 100    # makes the log, once
    python -m benchmarks.api.latency --home /tmp/long --seconds 60 --rate 50       # then measures
    python -m benchmarks.api.latency --home /tmp/long --workers 2                  # and trainings

The client is another process. It sends requests at fixed times, even if earlier ones are not
answered yet (an open loop). A request's latency counts from the time when it should have been sent.
With --workers a worker of as many devices trains models of `forge cognate` beside the server.
The first seconds, in which a server imports what it needs, are a row of their own. Live events: the
time from the append to the message.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2

from agent_forge.events import Event, New
from agent_forge.evomerge.run import events as run_events
from agent_forge.runs.home import Home
from agent_forge.runs.lists import model_registry
from agent_forge.runs.lists.queries import position
from agent_forge.runs.streams import stream
from agent_forge.worker.commands import accounts
from testing.worlds.fake_world import World, small

#: Seconds of requests after the start of the server that are counted apart.
BEGINNING = 4
FORGE = [sys.executable, "-c", "from agent_forge.cli.main import main; main()"]


def template(count: int) -> list[tuple[str, Event]]:
    """Return (end of the key, event) of a whole run of at least `count` events."""
    generations = 1
    while True:
        world = World(small(generations=generations, convergence_patience=0))
        world.run()
        if len(world.rows) >= count:
            break
        generations += 1
    return [(row.key.partition("/")[2], run_events.REGISTRY.load(row)) for row in world.rows]


def fill(home: Home, runs: int, events: int) -> None:
    """Write the log; runs that are there already are kept."""
    store = home.open_store()
    if not accounts.read(store).roles:
        accounts.add(store, "bench", "admin")
    rows = template(events)
    began = time.perf_counter()
    for number in range(runs):
        run = f"run-{number:06d}"
        if store.version(stream("evomerge", run)):
            continue
        new = []
        for key, event in rows:
            if isinstance(event, run_events.Submitted):
                owner = f"user-{number % 20}"
                event = event.model_copy(update={"run": run, "owner": owner})
            if isinstance(event, run_events.Completed):  # a champion of its own
                digest = hashlib.sha256(run.encode()).hexdigest()
                event = event.model_copy(update={"digest": digest})
            new.append(New(event, f"{run}/{key}"))
        store.append(stream("evomerge", run), 0, new)
        if number % 1000 == 0:
            print(f"{number} runs, {time.perf_counter() - began:.0f} s", flush=True)
    seen, (_, count) = position(store), model_registry.listed(store, limit=1)
    print(f"{store.end():,} events; run list at {seen:,}, {count} models", flush=True)
    store.close()


def paths(rng: random.Random, runs: int) -> list[tuple[str, str]]:
    """Return (kind of request, path) of one round over every GET."""
    run, other = (f"run-{rng.randrange(runs):06d}" for _ in "ab")
    return [
        ("/runs", f"/runs?limit={rng.choice([20, 50, 200])}"),
        ("/runs, filtered", f"/runs?status=completed&owner=user-{rng.randrange(20)}"),
        ("/runs, searched", f"/runs?q={run[-4:]}"),
        ("/runs/RUN", f"/runs/{run}"),
        ("/runs/RUN at a place", f"/runs/{run}?at={rng.choice([5, 20, 40])}"),
        ("/runs/RUN/events", f"/runs/{run}/events?limit=200&data=false"),
        ("/runs/RUN/population", f"/runs/{run}/population"),
        ("/runs/RUN/candidates", f"/runs/{run}/candidates/champion"),
        ("/runs/RUN/lineage", f"/runs/{run}/lineage"),
        ("/runs/RUN/compare", f"/runs/{run}/compare/{other}"),
        ("/queue", "/queue"),
        ("/workers", "/workers"),
        ("/models", "/models"),
        ("/me", "/me"),
        ("/settings", "/settings"),
        ("/phases/status", "/phases/status"),
    ]


async def load(url: str, token: str, rate: float, seconds: float, runs: int) -> dict[str, list[float]]:
    """Send requests at `rate` a second; return the latencies in seconds by kind of request."""
    rng, found = random.Random(7), {}
    tasks: list[asyncio.Task[None]] = []
    limits = httpx2.Limits(max_connections=200)
    head = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=url, headers=head, limits=limits, timeout=60) as client:

        async def one(what: str, path: str, due: float) -> None:
            answer = await client.get(path)
            assert answer.status_code in (200, 404, 422), (path, answer.status_code, answer.text)
            found.setdefault(what, []).append(time.perf_counter() - due)

        began, number = time.perf_counter(), 0
        waiting: list[tuple[str, str]] = []
        while number < rate * seconds:
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            waiting = waiting or paths(rng, runs)
            what, path = waiting.pop(0)
            tasks.append(asyncio.create_task(one(what, path, due)))
            number += 1
        await asyncio.gather(*tasks)
    return found


async def live(url: str, token: str, home: Home, count: int) -> list[float]:
    """Return the seconds from each of `count` appends to its message."""
    from websockets.asyncio.client import connect

    store, found = home.open_store(), []
    run = "run-000000"
    place = url.replace("http", "ws") + "/ws"
    async with connect(place, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
        await socket.recv()
        await socket.send(json.dumps({"type": "subscribe"}))
        await socket.recv()
        for number in range(count):
            event = run_events.Exported(
                recipe_id="0" * 64, folder="x", digest="0" * 64, reason=str(number)
            )
            version = store.version(stream("evomerge", run))
            new = New(event, f"{run}/exported/bench-{version}")
            await asyncio.to_thread(store.append, stream("evomerge", run), version, [new])
            began = time.perf_counter()
            while json.loads(await socket.recv())["type"] != "event":
                pass
            found.append(time.perf_counter() - began)
            await asyncio.sleep(0.05)
    store.close()
    return found


def quantile(values: list[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(home: Home, rate: float, seconds: float, runs: int, port: int) -> None:
    """Send load to a server, and print a row for each kind of request."""
    store = home.open_store()
    token = accounts.issue(store, "bench")[1]
    store.close()
    url = f"http://127.0.0.1:{port}"
    begun = asyncio.run(load(url, token, rate, BEGINNING, runs))
    begun = {"the first seconds": [value for values in begun.values() for value in values]}
    found = asyncio.run(load(url, token, rate, seconds, runs))
    every = [value for values in found.values() for value in values]
    print(f"{'':24s} {'requests':>8s} {'median':>8s} {'p99':>8s}  ms")
    for what, values in [*begun.items(), *found.items(), ("all", every)]:
        told = [1e3 * quantile(values, share) for share in (0.5, 0.99)]
        print(f"{what:24s} {len(values):8d} {told[0]:8.1f} {told[1]:8.1f}")
    waits = asyncio.run(live(url, token, home, 50))
    print(
        f"{'live, from the append':24s} {len(waits):8d} {1e3 * quantile(waits, 0.5):8.1f} "
        f"{1e3 * quantile(waits, 0.99):8.1f}"
    )


def main() -> None:
    """Write the log if needed, start a server and measure it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--fill-only", action="store_true")
    given = parser.parse_args()
    home = Home(given.home.absolute())
    fill(home, given.runs, given.events)
    if given.fill_only:
        return
    env = {**os.environ, "FORGE_HOME": str(home.folder), "FORGE_API_RATE": "10000"}
    started: list[Any] = [subprocess.Popen([*FORGE, "serve", "--port", str(given.port)], env=env)]
    if given.workers:
        command = [*FORGE, "worker", "--concurrency", str(given.workers)]
        started.append(subprocess.Popen(command, env=env))
        for number in range(given.workers):
            out, seed = str(home.folder / f"models-{os.getpid()}-{number}"), str(number)
            training = [*FORGE, "cognate", "--out", out, "--seed", seed, "--detach"]
            subprocess.run(training, env=env, check=True)
    try:
        wait_for(given.port)
        measure(home, given.rate, given.seconds, given.runs, given.port)
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(300)  # a worker ends the segment that it trains


def wait_for(port: int) -> None:
    """Wait until the server answers."""
    while True:
        try:
            httpx2.get(f"http://127.0.0.1:{port}/health", timeout=5)
            return
        except httpx2.HTTPError:
            time.sleep(0.3)


if __name__ == "__main__":
    main()
