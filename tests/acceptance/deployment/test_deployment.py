"""What is written down for deployments is what runs: each command of the compose file, as a process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from cli.operations.doctor import OURS
from testing import system_calls
from testing.services.cluster import FORGE
from testing.services.servers import Postgres
from testing.waiting import wait_until
from worker.devices.local_servers import free_port, redis_binary

ROOT = Path(__file__).parents[3]
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


def test_every_container_is_locked_in() -> None:
    """Who breaks into one has no capability, no way to gain any, and nothing to change."""
    users = {"redis": "valkey", "postgres": "postgres"}
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert "privileged" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert "/tmp" in service["tmpfs"], name
        assert service.get("user") == users.get(name), f"{name}: ours is the image's own"
    assert "USER forge" in (ROOT / "Dockerfile").read_text().splitlines()


def test_secrets_go_only_to_the_services_that_use_them() -> None:
    """The migration needs the database alone; the server rings no doorbell."""
    store = {"FORGE_ARTIFACT_KEY", "FORGE_ARTIFACT_KEY_FILE", "AWS_SECRET_ACCESS_KEY"}
    secrets = {
        "redis": {"FORGE_REDIS_PASSWORD"},
        "postgres": {"POSTGRES_PASSWORD"},
        "migrate": {"FORGE_DATABASE_URL"},
        "server": {"FORGE_DATABASE_URL", *store},
        "worker": {"FORGE_DATABASE_URL", "FORGE_BROKER_URL", "HF_TOKEN", *store},
    }
    secrets["worker-gpu"] = secrets["worker"]
    every = {*secrets["worker"], "FORGE_REDIS_PASSWORD", "POSTGRES_PASSWORD"}
    given = {name: every & set(service["environment"]) for name, service in SERVICES.items()}
    assert given == secrets


def test_the_passwords_of_the_compose_file_are_written_for_their_owner_alone(
    tmp_path: Path,
) -> None:
    """The very command of its head, under the usual umask."""
    head = (ROOT / "docker-compose.yml").read_text()
    (command,) = re.findall(r"^#   (\(umask.* > \.env\))$", head, re.MULTILINE)
    subprocess.run(["sh", "-c", f"umask 022; {command}"], cwd=tmp_path, check=True)
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    lines = (tmp_path / ".env").read_text().splitlines()
    found = [re.fullmatch(r"FORGE_(\w+)_PASSWORD=([0-9a-f]{48})", line) for line in lines]
    assert [match and match[1] for match in found] == ["REDIS", "POSTGRES"]
    assert len({match and match[2] for match in found}) == 2


def test_no_command_of_the_documents_has_a_password_as_an_argument() -> None:
    """Arguments are in the process list, for every user of the machine."""
    files = [ROOT / "docker-compose.yml", *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    for file in [*files, *(ROOT / "docs" / "systemd").iterdir()]:
        for line in file.read_text().splitlines():
            told = re.search(r"\b(pg_\w+|psql|redis-cli|valkey-cli)\b.*(_URL|-a \S|--pass)", line)
            assert told is None, f"{file.name}: {line}"


def locked() -> dict[str, list[tuple[str, int]]]:
    """Package → its (version, number of hashes), by requirements.lock."""
    found: dict[str, list[tuple[str, int]]] = {}
    text = (ROOT / "requirements.lock").read_text()
    for part in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
        match = re.match(r"([a-z0-9.-]+)==(\S+)", part)
        assert match, part
        hashes = len(re.findall(r"--hash=sha256:[0-9a-f]{64}", part))
        found.setdefault(match[1], []).append((match[2], hashes))
    return found


def test_the_image_installs_what_the_lock_says_by_hash() -> None:
    """`make lock` mends it. torch is apart: each index has its own builds of it."""
    packages, project = locked(), tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["s3"], *extras["gcs"]]
    for needed in map(Requirement, [*wanted, *project["build-system"]["requires"]]):
        name = re.sub(r"[-_.]+", "-", needed.name).lower()
        if name == "torch":
            assert name not in packages
            continue
        assert packages.get(name), f"{name} is not in requirements.lock"
        assert all(needed.specifier.contains(version) for version, _ in packages[name]), needed
    assert all(hashes for versions in packages.values() for _, hashes in versions)
    steps = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*?);", steps.replace("\\\n", ""))
    assert installs[0] == "--require-hashes -r requirements.lock"
    assert installs[-1] == "--no-deps --no-index --no-build-isolation ."
    assert all("torch" in each for each in installs[1:-1])


def test_every_variable_of_forge_is_documented() -> None:
    text = (ROOT / "docs" / "environment.md").read_text()
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


@pytest.mark.slow
def test_the_commands_of_the_compose_file_run(
    redis: tuple[str, dict[str, str]], postgres: Postgres, tmp_path: Path
) -> None:
    """Redis with its password, the migration, a worker with metrics, and their health checks."""
    broker, env_redis = redis
    wait_until(lambda: healthy(SERVICES["redis"]["healthcheck"]["test"], env_redis), "Redis")
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
        wait_until(lambda: healthy(check, env), "the worker is healthy")
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        for name in re.findall(r"`(forge_\w+?)(?:\{|`)", (ROOT / "docs/operations.md").read_text()):
            assert name in text, f"docs/operations.md names {name}"
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        log.close()
    assert not healthy(check, env)


@pytest.mark.slow
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
        cwd=tmp_path / "context",
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "out").glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for folder in OURS:
        wanted = {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*.py")}
        assert wanted
        assert wanted <= packed
    assert {"api/site/index.html", "api/site/BUILD.json"} <= packed
    data = ("library.jsonl.gz", "library.LICENSE.txt", "phrases.csv")
    assert {f"evaluation/data/builtin/{name}" for name in data} <= packed
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


#: Exposure that `systemd-analyze security` may find, in tenths: 0 is best, 100 worst.
EXPOSURE = {"forge-redis": 20, "forge-server": 20, "forge-worker": 25}


@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_may_do_little_beside_its_work(name: str) -> None:
    """Who breaks into a service reads no home, writes nothing but its state, and gains nothing."""
    lines = (ROOT / "docs" / "systemd" / f"{name}.service").read_text().splitlines()
    needed = {
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "UMask=0077",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged",
        "SystemCallArchitectures=native",
        "RestrictNamespaces=yes",
    }
    assert needed <= set(lines)
    assert ("PrivateDevices=yes" in lines) == (name != "forge-worker"), "GPUs are devices"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", EXPOSURE)
def test_systemd_finds_a_unit_little_exposed(name: str, tmp_path: Path) -> None:
    """By its own measure; before there were any bounds it was 84 and 87."""
    text = (ROOT / "docs" / "systemd" / f"{name}.service").read_text()
    # A unit whose program is missing is not looked at.
    text = text.replace("ExecStart=/opt/agent-forge/.venv/bin/forge", "ExecStart=/bin/true")
    (tmp_path / f"{name}.service").write_text(text)
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager"]
    bound = f"--threshold={EXPOSURE[name]}"
    file = str(tmp_path / f"{name}.service")
    done = subprocess.run([*command, bound, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not system_calls.available(), reason="no systemd, or no numbers of calls")
@pytest.mark.parametrize("name", ["forge-server", "forge-worker"])
def test_a_unit_s_system_calls_are_enough_for_its_work(name: str, tmp_path: Path) -> None:
    """A filter that is too narrow ends a service only where it is deployed."""
    unit = ROOT / "docs" / "systemd" / f"{name}.service"
    filtered = [sys.executable, "-m", "testing.system_calls", str(unit)]
    env = {**os.environ, "FORGE_HOME": str(tmp_path), "OMP_NUM_THREADS": "2"}
    work = (
        "import os, sys, torch\n"
        "from evaluation.sandbox.sandbox import Sandbox\n"
        "from cli.main import main\n"
        "Sandbox.open().close()\n"
        "torch.ones(512, 512) @ torch.ones(512, 512)\n"
        "try:\n    os.chroot('/')\n    print('not filtered')\nexcept PermissionError:\n    pass\n"
        "sys.argv[1:] = ['db', 'upgrade']\nmain()\n"
    )
    done = subprocess.run(
        [*filtered, sys.executable, "-c", work], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "not filtered" not in done.stdout
    assert (tmp_path / "forge.db").is_file()


def test_setting_up_says_a_line_a_step(tmp_path: Path) -> None:
    """Minutes without a word look like a command that hangs."""
    command = ["make", "--dry-run", f"VENV={tmp_path / 'venv'}", "lint"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for step in ("1/3", "2/3", "3/3"):
        assert step in told
    assert "--quiet" not in told
