"""Threads that wait for each other sleep, so that a busy machine does not stop us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_forge.runs.system.process_limits import DECIDES, SPINS, said, sleep_by_default
from testing.services.cluster import FORGE
from testing.worlds.runs import REPOSITORY


def doctor(tmp_path: Path, **given: str) -> tuple[str, str]:
    """What `forge doctor` says, and what OpenMP says of itself when torch is imported."""
    env = {name: value for name, value in os.environ.items() if name not in DECIDES}
    env |= {"FORGE_HOME": str(tmp_path), "OMP_DISPLAY_ENV": "verbose", **given}
    done = subprocess.run([*FORGE, "doctor"], cwd=REPOSITORY, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks libgomp, which torch has on Linux")
def test_openmp_itself_says_that_waiting_threads_sleep(tmp_path: Path) -> None:
    """The setting must stand before torch is imported, and be one that torch's OpenMP obeys."""
    told, openmp = doctor(tmp_path)
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in openmp
    assert f"GOMP_SPINCOUNT = '{SPINS}'" in openmp
    assert f"they sleep (OMP_WAIT_POLICY=PASSIVE, GOMP_SPINCOUNT={SPINS})" in told


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks libgomp, which torch has on Linux")
def test_threads_of_a_script_sleep_too() -> None:
    env = {name: value for name, value in os.environ.items() if name not in DECIDES}
    done = subprocess.run(
        [sys.executable, "-c", "import agent_forge, torch"],
        cwd=REPOSITORY,
        env={**env, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
    assert f"GOMP_SPINCOUNT = '{SPINS}'" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks libgomp, which torch has on Linux")
def test_a_user_decides_otherwise_and_is_told_what_it_means(tmp_path: Path) -> None:
    told, openmp = doctor(tmp_path, OMP_WAIT_POLICY="ACTIVE")
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in openmp
    assert "they may spin (OMP_WAIT_POLICY=ACTIVE)" in told


def test_what_a_user_set_stays() -> None:
    """By whichever of the variables; one that is empty says nothing."""
    for name in DECIDES:
        env = {name: "7"}
        sleep_by_default(env)
        assert env == {name: "7"}
    env = {"GOMP_SPINCOUNT": ""}
    sleep_by_default(env)
    assert env == {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": str(SPINS)}
    assert said(env) == (True, f"OMP_WAIT_POLICY=PASSIVE, GOMP_SPINCOUNT={SPINS}")
    assert said({"OMP_WAIT_POLICY": "PASSIVE"}) == (True, "OMP_WAIT_POLICY=PASSIVE")
    assert said({"KMP_BLOCKTIME": "0"})[0] is True
    assert said({"KMP_BLOCKTIME": "200"})[0] is False, "milliseconds"
    for count in (str(SPINS + 1), "300000", "INFINITE"):
        assert said({"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": count})[0] is False
    assert said({}) == (False, "nothing is set")
