"""What is written down for deployments is what runs: each command of the compose file, as a process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import FORGE
from tests.servers import Postgres
from worker.servers import free_port, redis_binary

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PASSWORD = "secret-of-the-test"


def test_the_compose_file_refers_to_what_it_defines() -> None:
    for name, service in SERVICES.items():
        assert "image" in service or "build" in service, name
        assert set(service.get("networks", [])) <= set(COMPOSE["networks"]), name
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed], f"{name} waits for {needed}"
        for volume in service.get("volumes", []):
            source = re.sub(r"\$\{[^}]*\}", "./x", volume).partition(":")[0]
            assert source.startswith(("/", ".")) or source in COMPOSE["volumes"], volume
    assert SERVICES["worker-gpu"]["profiles"] == ["gpu"]


def test_nothing_listens_outside_and_no_secret_is_written_down() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert list(ports) == ["server"]
    assert all(port.startswith("127.0.0.1:") for port in ports["server"])
    assert COMPOSE["networks"]["backend"]["internal"] is True
    text = (ROOT / "docker-compose.yml").read_text()
    for secret in ("FORGE_REDIS_PASSWORD", "FORGE_POSTGRES_PASSWORD"):
        assert f"${{{secret}:?" in text, "it stops where the secret is missing"
        given = [e.get(secret) for e in (v.get("environment", {}) for v in SERVICES.values())]
        assert all(value is None or value.startswith(f"${{{secret}:?") for value in given)


def test_every_variable_of_forge_is_documented() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    used = set()
    for folder in ("api", "cli", "events", "evomerge", "worker", "agent_forge"):
        for file in (ROOT / folder).rglob("*.py"):
            used |= set(re.findall(r'"(FORGE_[A-Z_]+)"', file.read_text()))
    internal = {"FORGE_WORKER", "FORGE_DEVICE", "FORGE_FAILPOINTS", "FORGE_LOG"}
    assert {name for name in used - internal if f"`{name}`" not in text} == set()


def environment(url: str, broker: str, home: Path) -> dict[str, str]:
    """The environment of a worker of the compose file, with our addresses."""
    given = SERVICES["worker"]["environment"]
    assert given["FORGE_DATABASE_URL"].startswith("postgresql://")
    assert given["FORGE_BROKER_URL"].startswith("redis://:")
    mine = {"FORGE_DATABASE_URL": url, "FORGE_BROKER_URL": broker, "FORGE_HOME": str(home)}
    quiet = {"FORGE_THREADS": "1", "FORGE_ARTIFACT_STORE": "", "FORGE_ARTIFACT_KEY_FILE": ""}
    return {**os.environ, **mine, **quiet, "OMP_WAIT_POLICY": given["OMP_WAIT_POLICY"]}


def unescaped(words: list[str]) -> list[str]:
    """`$$` is how a compose file writes `$`."""
    return [word.replace("$$", "$") for word in words]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(its URL, its environment): the compose file's own command, on a port that is free."""
    folder, port = tmp_path / "bin", free_port()
    folder.mkdir()
    (folder / "valkey-server").write_text(
        f'#!/bin/sh\nexec {redis_binary()} "$@" --port {port} --dir {tmp_path}\n'
    )
    (folder / "valkey-cli").write_text(
        f"#!{sys.executable}\nimport os, redis, sys\n"
        f"client = redis.Redis(port={port}, password=os.environ['REDISCLI_AUTH'])\n"
        "print('PONG' if sys.argv[1] == 'ping' and client.ping() else '')\n"
    )
    for file in folder.iterdir():
        file.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "FORGE_REDIS_PASSWORD": PASSWORD,
    }
    command = unescaped(SERVICES["redis"]["command"])
    process = subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.DEVNULL)
    yield f"redis://:{PASSWORD}@127.0.0.1:{port}/0", env
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def healthy(check: list[str], env: dict[str, str]) -> bool:
    """Whether a service's own health check passes."""
    if check[0] == "CMD-SHELL":
        command = ["sh", "-c", *unescaped(check[1:])]
    else:
        assert check[:2] == ["CMD", "forge"]
        command = [*FORGE, *check[2:]]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True).returncode == 0


def test_the_commands_of_the_compose_file_run(
    redis: tuple[str, dict[str, str]], postgres: Postgres, tmp_path: Path
) -> None:
    """Redis with its password, the migration, a worker with metrics, and their health checks."""
    broker, env_redis = redis
    deadline = time.monotonic() + 20
    while not healthy(SERVICES["redis"]["healthcheck"]["test"], env_redis):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    wrong = {**env_redis, "FORGE_REDIS_PASSWORD": "wrong"}
    assert not healthy(SERVICES["redis"]["healthcheck"]["test"], wrong)

    env = environment(postgres.new_database(), broker, tmp_path / "home")
    migrate = [*FORGE, *SERVICES["migrate"]["command"]]
    done = subprocess.run(migrate, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    check = SERVICES["worker"]["healthcheck"]["test"]
    assert not healthy(check, env)
    words, port = SERVICES["worker"]["command"], free_port()
    words = [str(port) if word == "9100" else word for word in words]
    log = (tmp_path / "log").open("w")
    worker = subprocess.Popen([*FORGE, *words], env=env, cwd=ROOT, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not healthy(check, env):
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        for name in re.findall(r"`(forge_\w+?)(?:\{|`)", (ROOT / "docs/operations.md").read_text()):
            assert name in text, f"docs/operations.md names {name}"
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        log.close()
    assert not healthy(check, env)


def test_the_image_has_what_the_program_needs(tmp_path: Path) -> None:
    """The files that the Dockerfile copies make a package with everything in it."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    for line in lines:
        if not line.startswith("COPY "):
            continue
        *names, target = line.split()[1:]
        for name in names:
            source = ROOT / name
            place = tmp_path / "context" / ("" if target == "./" else target)
            if source.is_dir():
                shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path / "out"), "."],
        cwd=tmp_path / "context", check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = (tmp_path / "out").glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("agent_forge", "api", "cli", "cognate", "events", "evomerge", "worker"):
        wanted = {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*.py")}
        assert wanted <= packed
    assert {"api/site/index.html", "api/site/BUILD.json"} <= packed
    found = subprocess.run(
        ["grep", "^torch==", "constraints.txt"], cwd=ROOT, capture_output=True, text=True
    )
    assert re.fullmatch(r"torch==[\d.]+\n", found.stdout)


@pytest.mark.parametrize("name", ["forge-worker", "forge-server", "forge-redis"])
def test_the_units_of_systemd_are_ones(name: str) -> None:
    unit = (ROOT / "docs" / "systemd" / f"{name}.service").read_text()
    assert {"[Unit]", "[Service]", "[Install]"} <= set(unit.splitlines())
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    if name != "forge-redis":
        words = command.partition("/forge ")[2].split()
        done = subprocess.run([*FORGE, *words, "--help"], cwd=ROOT, capture_output=True)
        assert done.returncode == 0
