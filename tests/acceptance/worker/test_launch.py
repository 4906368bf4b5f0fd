"""`forge workers launch`: stand-ins of the job managers start real workers, which do a real run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent_forge.runs.kinds import FURTHER
from testing.services import job_managers
from testing.services.cluster import FORGE, Cluster
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.worlds.runs import REPOSITORY

#: The last words of each launch.
FURTHER_WORDS = ("--idle-exit", "8", "--", "--device", "cpu")


@pytest.fixture(autouse=True)
def toy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the toy kind to this process."""
    monkeypatch.setenv(FURTHER, KNOWN)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A queue with a run and without workers, and stand-ins of the job managers on the PATH."""
    made = Cluster(tmp_path, env={FURTHER: KNOWN, job_managers.FOLDER: str(tmp_path)})
    programs = job_managers.install(tmp_path)
    made.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    made.env["FORGE_DATABASE_URL"] = f"sqlite:///{made.home.database}"
    toy_runs.submit(made.home, steps=2, width=4, slow=0.5)
    yield made
    made.close()


def launched(cluster: Cluster, manager: str, *words: str) -> Path:
    """Submit workers; return the file that the job manager was given."""
    told = cluster.forge("workers", "launch", "--on", manager, *words, *FURTHER_WORDS)
    (file,) = (cluster.home.folder / "launched").iterdir()
    assert str(file) in told
    return file


def works(cluster: Cluster, file: Path, workers: int) -> None:
    """The waiting run is done by these workers; they end by themselves; the file has no secret."""
    state = cluster.wait(lambda: (s := toy_runs.state(cluster.home)).ended and s)
    assert state.status == "completed", cluster.logs()
    codes = cluster.wait(lambda: len(found := [*cluster.folder.glob("exit-*")]) == workers and found)
    assert {code.read_text() for code in codes} == {"0\n"}, cluster.logs()
    actors = {row.actor for row in toy_runs.rows(cluster.home) if row.type == "counted"}
    assert actors
    assert all(actor.startswith("worker/") for actor in actors)
    text = file.read_text()
    assert cluster.redis.url not in text
    assert "sqlite" not in text


@pytest.mark.smoke
@pytest.mark.slow
def test_an_array_of_slurm_works_on_the_queue(cluster: Cluster) -> None:
    file = launched(cluster, "slurm", "--workers", "2", "--before", "export NOTHING=1", "--cpus", "1")
    works(cluster, file, 2)


@pytest.mark.slow
def test_pods_of_kubernetes_get_the_queue_from_a_secret(cluster: Cluster) -> None:
    """They inherit no variable of the machine that submitted them."""
    names = ("FORGE_DATABASE_URL", "FORGE_BROKER_URL", FURTHER)
    lines = [f"{name}={cluster.environment[name]}" for name in names]
    (cluster.folder / "secret-queue").write_text("\n".join(lines))
    words = ("--image", "registry/forge", "--secret", "queue", "--before", "export NOTHING=1")
    works(cluster, launched(cluster, "kubernetes", *words), 1)


@pytest.mark.slow
def test_machines_of_skypilot_get_variables_by_name(cluster: Cluster) -> None:
    words = ("--gpus", "H100:1", "--extra", "use_spot: true")
    file = launched(cluster, "sky", *words)
    assert yaml.safe_load(file.read_text())["resources"] == {"accelerators": "H100:1", "use_spot": True}
    works(cluster, file, 1)


def launch(tmp_path: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `forge workers launch` without any job manager on the PATH."""
    return subprocess.run(
        [*FORGE, "workers", "launch", *words],
        cwd=REPOSITORY,
        env={"PATH": "", "FORGE_HOME": str(tmp_path), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--on", "slurm"), 3, "`sbatch` is not on the PATH"),
        (("--on", "kubernetes", "--image", "x"), 3, "`kubectl` is not on the PATH"),
        (("--on", "sky"), 3, "`sky` is not on the PATH"),
        (("--on", "kubernetes"), 2, "needs --image"),
        (("--on", "kubernetes", "--image", "x", "--gpus", "H100:1"), 2, "takes a number of --gpus"),
        (("--on", "sky", "--gpus", "2"), 2, "such as --gpus H100:2"),
        (("--on", "sky", "--extra", "use_spot"), 2, "is not KEY: VALUE"),
        (("--on", "slurm", "--", "--nope"), 2, "No such option"),
        (
            ("--on", "slurm", "--before", "export U=sqlite:////x.db"),
            2,
            "the value of FORGE_DATABASE_URL",
        ),
    ],
)
def test_what_cannot_be_submitted_is_said(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = launch(tmp_path, *words, FORGE_DATABASE_URL="sqlite:////x.db")
    assert message in done.stderr
    assert done.returncode == code
    assert not (tmp_path / "launched").exists()


def test_a_machine_of_a_cloud_needs_the_address_of_the_log(tmp_path: Path) -> None:
    """Without it the machine would wait for work in a queue of its own."""
    assert "set FORGE_DATABASE_URL" in launch(tmp_path, "--on", "sky").stderr


def test_a_dry_run_prints_the_file_alone(tmp_path: Path) -> None:
    words = ("--workers", "3", "--gpus", "1", "--cpus", "8", "--max-hours", "4", "--dry-run")
    text = launch(tmp_path, "--on", "slurm", *words, "--extra=--partition=gpu").stdout
    lines = [line for line in text.splitlines() if not line.startswith("#SBATCH --job-name=")]
    (step,) = [line for line in lines if line.startswith("srun")]
    assert lines[:11] == [
        "#!/bin/bash",
        "#SBATCH --array=1-3",
        "#SBATCH --ntasks=1",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --gpus-per-node=1",
        "#SBATCH --time=242",
        "#SBATCH --signal=USR1@80",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --export=ALL",
        "#SBATCH --partition=gpu",
    ]
    assert step.endswith("--notice 20 --idle-exit 300 --max-hours 4")
    words = (*words, "--image", "registry/forge", "--extra", "priorityClassName: low")
    spec = yaml.safe_load(launch(tmp_path, "--on", "kubernetes", *words).stdout)["spec"]
    pod = spec["template"]["spec"]
    assert (spec["parallelism"], spec["activeDeadlineSeconds"]) == (3, 4 * 3600 + 80)
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1, "cpu": 8}
    assert pod["priorityClassName"] == "low"
    assert not (tmp_path / "launched").exists()
