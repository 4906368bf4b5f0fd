"""Items made of a task's documents, which a process with lm-evaluation-harness reads."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.lm_eval import spec as lm_eval_spec
from evaluation.lm_eval.spec import Spec
from runs.errors import DataError
from runs.system import packages
from runs.system.child_environment import child_environment

#: Most seconds for reading a task, with the download of its data set if that is allowed.
LONGEST = 1800.0


@dataclass(frozen=True)
class Read:
    """Rows and names read from a task."""

    rows: tuple[dict[str, Any], ...]
    #: Names of tasks and of their datasets.
    names: tuple[str, ...]


def rows(arguments: Sequence[str], allow_benchmarks: bool) -> list[dict[str, Any]]:
    """Return rows of items, in the format of JSONL data, of all tasks among the given strings.

    Raises DataError, UnavailableError.
    """
    result = []
    for spec in map(lm_eval_spec.parse, filter(lm_eval_spec.is_task, arguments)):
        if not allow_benchmarks:
            lm_eval_spec.guard(spec, [spec.file.stem if spec.file else spec.task])
        contents = _read(spec)
        if not allow_benchmarks:
            lm_eval_spec.guard(spec, contents.names)
        result += contents.rows
    return result


def _read(spec: Spec) -> Read:
    check(spec)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "evaluation.lm_eval.reader", str(spec), str(out)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                env=child_environment("task"),
                timeout=LONGEST,
            )
        except subprocess.TimeoutExpired as error:
            raise DataError(
                f"{spec}: lm-evaluation-harness took longer than {LONGEST:g} s to read it. Fetch its "
                "data set first, or take fewer documents (@COUNT)."
            ) from error
        if not out.exists():
            last = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1]
            raise DataError(f"{spec}: lm-evaluation-harness could not read it ({last[:300]}).")
        document = json.loads(out.read_text("utf-8"))
    if "error" in document:
        raise DataError(f"{spec}: {document['error']}")
    return Read(tuple(document["rows"]), tuple(document["names"]))


def check(spec: Spec) -> None:
    """Raise DataError or UnavailableError if the task cannot be read on this machine."""
    packages.require(str(spec), "lm_eval")
    lm_eval_spec.check_file(spec)
    if spec.file is not None and not spec.file.is_file():
        raise DataError(f"task file {spec.file} does not exist.")
