"""Stand-ins of `sbatch`, `srun`, `kubectl` and `sky`: they run what they are given as processes here.

    python -m testing.services.job_managers sbatch FILE        as `install` puts them on the PATH

A job's log is `worker-JOB.log` and its exit code `exit-JOB`, in the folder that STAND_INS names. As on
real machines, a pod gets the variables of its Secret alone (the file `secret-NAME`, lines KEY=VALUE),
and a cloud's machine those that were named to `sky`.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from testing.worlds.runs import REPOSITORY

#: The variable that names their folder.
FOLDER = "STAND_INS"
PROGRAMS = ("sbatch", "srun", "kubectl", "sky")


def install(folder: Path, *programs: str) -> Path:
    """Write the programs (default: all) into a folder for the PATH; return it."""
    place = folder / "bin"
    place.mkdir()
    for name in programs or PROGRAMS:
        call = f'{sys.executable} -m testing.services.job_managers {name} "$@"'
        (place / name).write_text(f"#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {call}\n")
        (place / name).chmod(stat.S_IRWXU)
    return place


def start(job: str, words: list[str], env: Mapping[str, str]) -> None:
    """Start a job's process, which outlives this one; the shell notes its exit code."""
    folder = Path(os.environ[FOLDER])
    shell = f'"$@"; echo $? > {folder}/exit-{job}'
    with (folder / f"worker-{job}.log").open("wb") as log:
        subprocess.Popen(
            ["/bin/sh", "-c", shell, "sh", *words],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def machine(job: str) -> dict[str, str]:
    """Return the variables of a machine of its own: a path and a home folder."""
    home = str(Path(os.environ[FOLDER]) / f"machine-{job}")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    further = {"PYTHONPATH": str(REPOSITORY), "PYTHONWARNINGS": "ignore"}  # the toy kind lies there
    return {"PATH": path, "HOME": home, "FORGE_HOME": home, **further}


def sbatch(file: str) -> None:
    """Run the script once for each number of its array, with this environment."""
    text = Path(file).read_text("utf-8")
    count = re.search(r"^#SBATCH --array=1-(\d+)$", text, re.MULTILINE)
    assert count, text
    for number in range(1, int(count[1]) + 1):
        start(f"slurm-{number}", ["bash", file], os.environ)
    print("Submitted batch job 17")


def srun(*words: str) -> None:
    """Become the step's program."""
    command = [word for place, word in enumerate(words) if any(w[0] != "-" for w in words[: place + 1])]
    os.execvp(command[0], command)


def kubectl(verb: str, _option: str, file: str) -> None:
    """Run the pods of a Job."""
    job: dict[str, Any] = yaml.safe_load(Path(file).read_text("utf-8"))
    assert (verb, job["apiVersion"], job["kind"]) == ("apply", "batch/v1", "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    secrets = [source["secretRef"]["name"] for source in container["envFrom"]]
    lines = [(Path(os.environ[FOLDER]) / f"secret-{name}").read_text().split() for name in secrets]
    variables = dict(line.split("=", 1) for secret in lines for line in secret)
    for number in range(1, job["spec"]["parallelism"] + 1):
        name = f"pod-{number}"
        start(name, container["command"], {**machine(name), **variables})
    print(f"job.batch/{job['metadata']['name']} created")


def sky(verb: str, *words: str) -> None:
    """Run a task on a new machine, with the variables that were named."""
    assert verb == "launch"
    named = [value for option, value in pairwise(words) if option == "--secret"]
    cluster = words[words.index("-c") + 1]
    (file,) = [word for word in words if word.endswith(".yaml")]
    task: dict[str, Any] = yaml.safe_load(Path(file).read_text("utf-8"))
    env = {**machine(cluster), **{name: os.environ[name] for name in named}}
    start(cluster, ["bash", "-c", task["run"]], env)


if __name__ == "__main__":
    {"sbatch": sbatch, "srun": srun, "kubectl": kubectl, "sky": sky}[sys.argv[1]](*sys.argv[2:])
