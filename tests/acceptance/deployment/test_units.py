"""The units of systemd are read as meant, start what they name, and may do little beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from agent_forge.cli.main import forge
from agent_forge.worker.devices.local_servers import free_port
from testing import system_calls
from testing.services.deployments import PASSWORD, ROOT, UNITS, of_unit, redis_of


@pytest.mark.parametrize("name", ["forge-server", "forge-worker"])
def test_a_unit_s_command_is_one_of_forge(name: str) -> None:
    """With every option's value; test_deployment.py starts it."""
    program, command, *words = of_unit(name)
    assert program.endswith("/bin/forge")
    with click.Context(forge) as parent:
        found = forge.get_command(parent, command)
        assert found is not None
        with found.make_context(command, words, parent=parent):
            pass


def test_the_redis_of_the_unit_asks_for_its_password_and_keeps_nothing(tmp_path: Path) -> None:
    """The unit's very command, read as systemd reads it, on another port."""
    command, port = of_unit("forge-redis"), free_port()
    with redis_of(command, tmp_path, port):
        client = redis.Redis(port=port, password=PASSWORD)
        found = {name: client.config_get(name)[name] for name in ("save", "appendonly", "bind")}
        assert found == {"save": "", "appendonly": "no", "bind": "127.0.0.1"}
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port, retry=Retry(NoBackoff(), 0)).ping()
        client.close()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_reads_a_unit_without_a_warning(name: str, tmp_path: Path) -> None:
    """A key that it does not know, such as one with a typing error, is ignored where it is deployed."""
    text = (ROOT / "docs" / "systemd" / f"{name}.service").read_text()
    assert {"[Unit]", "[Service]", "[Install]"} <= set(text.splitlines())
    file = tmp_path / f"{name}.service"
    # The program is not where it would be installed.
    file.write_text(text.replace("ExecStart=/opt/agent-forge/.venv/bin/forge", "ExecStart=/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if file.name in line] == []
    assert done.returncode == 0, done.stderr


#: Exposure that `systemd-analyze security` may find, in tenths: 0 is best, 100 worst.
EXPOSURE = {"forge-redis": 20, "forge-server": 20, "forge-worker": 25}


@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_may_do_little_beside_its_work(name: str) -> None:
    """A broken service reads no home, writes nothing but its state, and gains nothing."""
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
        "from agent_forge.evaluation.sandbox.sandbox import Sandbox\n"
        "from agent_forge.cli.main import main\n"
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
