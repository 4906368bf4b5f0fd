"""What is written down for deployments is what runs: each command of the compose file, as a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from packaging.requirements import Requirement

from agent_forge.cli.operations.serve import PORT
from agent_forge.worker.devices.local_servers import free_port
from testing.house_counts import PRODUCT, files
from testing.services.deployments import (
    COMPOSE,
    DOCKERFILE,
    PASSWORD,
    ROOT,
    SERVICES,
    healthy,
    here,
    of_image,
    of_unit,
    redis_of,
    running,
    unescaped,
)
from testing.services.servers import Postgres
from testing.waiting import wait_until


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


def test_the_passwords_of_the_compose_file_are_written_for_their_owner_alone(tmp_path: Path) -> None:
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
    used |= set(re.findall(r"\$\{([A-Z_0-9]+)", (ROOT / "docker-compose.yml").read_text()))
    used -= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"}  # other programs' own
    internal = {"FORGE_WORKER", "FORGE_DEVICE", "FORGE_FAILPOINTS", "FORGE_LOG"}
    assert {name for name in used - internal if f"`{name}`" not in text} == set()


def environment(service: str, home: Path, **ours: str) -> dict[str, str]:
    """The environment of a service of the compose file, with our addresses."""
    given = SERVICES[service]["environment"]
    assert given["FORGE_DATABASE_URL"].startswith("postgresql://")
    assert set(ours) == {"FORGE_DATABASE_URL", "FORGE_BROKER_URL"} & set(given)
    quiet = {"FORGE_THREADS": "1", "FORGE_ARTIFACT_STORE": "", "FORGE_ARTIFACT_KEY_FILE": ""}
    waits = {name: given[name] for name in ("OMP_WAIT_POLICY",) if name in given}
    return {**os.environ, **ours, **quiet, **waits, "FORGE_HOME": str(home)}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(its URL, its environment): the compose file's own command, on a port that is free."""
    port, command = free_port(), unescaped(SERVICES["redis"]["command"])
    with redis_of(command, tmp_path, port) as env:
        yield f"redis://:{PASSWORD}@127.0.0.1:{port}/0", env


def migrated(postgres: Postgres, home: Path) -> str:
    """The URL of a new database with the tables that the service `migrate` makes."""
    url = postgres.new_database()
    env = environment("migrate", home, FORGE_DATABASE_URL=url)
    command = here([*of_image("ENTRYPOINT"), *SERVICES["migrate"]["command"]])
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return url


def test_the_health_check_of_postgresql_finds_one_that_answers(
    postgres: Postgres, tmp_path: Path
) -> None:
    """The migration waits for it; a check that always fails keeps everything from starting."""
    check = SERVICES["postgres"]["healthcheck"]["test"]
    folder = parse_qs(urlsplit(postgres.url).query)["host"][0]
    assert healthy(check, {**os.environ, "PGHOST": folder})
    assert not healthy(check, {**os.environ, "PGHOST": str(tmp_path)})


#: Who starts a worker → its command: two services, the image's own CMD, and a unit.
WORKERS = {
    "worker": SERVICES["worker"]["command"],
    "worker-gpu": SERVICES["worker-gpu"]["command"],
    "CMD": of_image("CMD"),
    "forge-worker.service": of_unit("forge-worker")[1:],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "who",
    [
        *(who for who in WORKERS if who != "worker-gpu"),
        pytest.param("worker-gpu", marks=pytest.mark.soak),
    ],
)
def test_the_workers_of_the_deployments_start_and_are_healthy(
    who: str, redis: tuple[str, dict[str, str]], postgres: Postgres, tmp_path: Path
) -> None:
    """Redis with its password, the migration, a worker with metrics, and their health checks."""
    broker, env_redis = redis
    wrong = {**env_redis, "FORGE_REDIS_PASSWORD": "wrong"}
    assert not healthy(SERVICES["redis"]["healthcheck"]["test"], wrong)
    home = tmp_path / "home"
    url = migrated(postgres, home)
    env = environment("worker", home, FORGE_DATABASE_URL=url, FORGE_BROKER_URL=broker)

    check = SERVICES["worker"]["healthcheck"]["test"]
    assert not healthy(check, env)
    port = free_port()
    words = [str(port) if word == "9100" else word for word in WORKERS[who]]
    with running([*of_image("ENTRYPOINT"), *words], env, tmp_path / "log"):
        wait_until(lambda: healthy(check, env), "the worker is healthy")
        if "--metrics-port" in words:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            told = (ROOT / "docs/operations.md").read_text()
            for name in re.findall(r"`(forge_\w+?)(?:\{|`)", told):
                assert name in text, f"docs/operations.md names {name}"
    assert not healthy(check, env)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["server", "forge-server.service"])
def test_the_servers_of_the_deployments_start_and_are_healthy(
    who: str, postgres: Postgres, tmp_path: Path
) -> None:
    """By the service's health check; nothing is changed but the port and the folder of models."""
    home, models, port = tmp_path / "home", tmp_path / "models", free_port()
    models.mkdir()
    env = environment("server", home, FORGE_DATABASE_URL=migrated(postgres, home))
    check = [
        part.replace(f"127.0.0.1:{PORT}/", f"127.0.0.1:{port}/")
        for part in SERVICES["server"]["healthcheck"]["test"]
    ]
    assert check != SERVICES["server"]["healthcheck"]["test"]
    command = SERVICES["server"]["command"] if who == "server" else of_unit("forge-server")[1:]
    assert "/models" in command
    words = [str(models) if word == "/models" else word for word in command]
    assert not healthy(check, env)
    with running([*of_image("ENTRYPOINT"), *words, "--port", str(port)], env, tmp_path / "log"):
        wait_until(lambda: healthy(check, env), "the server is healthy")
    assert not healthy(check, env)


def test_the_server_s_port_is_one_number() -> None:
    """The compose file starts `serve` without `--port`, and maps and asks the port of its default."""
    service = SERVICES["server"]
    assert "--port" not in service["command"]
    assert service["ports"] == [f"127.0.0.1:${{FORGE_PORT:-{PORT}}}:{PORT}"]
    assert f"http://127.0.0.1:{PORT}/health" in service["healthcheck"]["test"][-1]


def test_the_compose_file_passes_on_what_an_image_is_made_of() -> None:
    """`.dockerignore` keeps the repository out: an image cannot say a commit that is not passed."""
    named = set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE))
    for name, service in SERVICES.items():
        if "build" not in service:
            continue
        args = service["build"]["args"]
        # The Dockerfile's own index is the CPU's, which every service but that for GPUs is for.
        left_out = set() if name == "worker-gpu" else {"TORCH_INDEX"}
        assert set(args) == named - left_out, name
        assert args["FORGE_COMMIT"] == "${FORGE_COMMIT:-}", name
    assert ".git" in (ROOT / ".dockerignore").read_text().splitlines()


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
        env={**os.environ, "FORGE_COMMIT": "0123456789ab"},  # as the ARG of the Dockerfile
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "out").glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    told = json.loads(zipfile.ZipFile(wheel).read("agent_forge/runs/system/build.json"))
    assert told == {"commit": "0123456789ab"}
    modules = {str(file.relative_to(ROOT)).removeprefix("agent_forge/") for file in files(*PRODUCT)}
    data = ("library.jsonl.gz", "library.LICENSE.txt", "phrases.csv")
    modules |= {f"evaluation/data/builtin/{name}" for name in data}
    modules |= {"api/site/index.html", "api/site/BUILD.json"}
    assert {f"agent_forge/{name}" for name in modules} <= packed
    found = subprocess.run(
        ["grep", "^torch==", "constraints.txt"], cwd=ROOT, capture_output=True, text=True
    )
    assert re.fullmatch(r"torch==[\d.]+\n", found.stdout)


def test_setting_up_says_a_line_a_step(tmp_path: Path) -> None:
    """Minutes without a word look like a command that hangs."""
    command = ["make", "--dry-run", f"VENV={tmp_path / 'venv'}", "lint"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for step in ("1/3", "2/3", "3/3"):
        assert step in told
    assert "--quiet" not in told
