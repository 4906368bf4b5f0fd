"""`lm-eval:NAME[#METRIC][@COUNT]`: items of a task of lm-evaluation-harness, by name or YAML file.

METRIC is one of the task's own metrics, by default the first that fits single items. COUNT takes
the first COUNT documents. Well-known benchmarks are refused as objectives unless the user allows
them: a champion that was selected on a benchmark can report nothing on it. A process with
lm-evaluation-harness reads the task's documents.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_forge.runs import home
from agent_forge.runs.errors import DataError, UnavailableError
from agent_forge.runs.system import packages
from agent_forge.runs.system.child_environment import child_environment

PREFIX = "lm-eval:"
#: The entry point of `judge`.
SCORER = "lm-eval"
#: Environment variable: folders of tasks, separated like those of PATH. Their tasks can be given by
#: name, and only their files may be read by workers, because a task file is code.
FOLDERS = "FORGE_TASK_FOLDERS"

#: Families of benchmarks that are used to compare models.
BENCHMARKS = (
    *("agieval", "aime", "aime24", "aime25", "arc", "bbh", "bigbench", "boolq", "ceval", "cmmlu"),
    *("commonsense_qa", "copa", "drop", "global_mmlu", "glue", "gpqa", "gsm8k", "gsm_plus"),
    *("hellaswag", "hendrycks_math", "hendrycksmath", "humaneval", "ifeval", "lambada", "leaderboard"),
    *("livebench", "logiqa", "math_500", "mathqa", "mbpp", "mgsm", "minerva_math", "mmlu", "mmlu_pro"),
    *("mmlusr", "musr", "natural_questions", "nq_open", "openbookqa", "piqa", "race", "sciq", "siqa"),
    *("social_iqa", "squad", "squadv2", "super_glue", "trivia_qa", "triviaqa", "truthful_qa"),
    *("truthfulqa", "wikitext", "winogrande", "xcopa", "xnli", "xstorycloze", "xwinograd"),
)
_KNOWN = re.compile(rf"(?:^|_)(?:{'|'.join(sorted(BENCHMARKS, key=len, reverse=True))})(?:_|$)")


@dataclass(frozen=True)
class Spec:
    """A task that is asked for, with its metric and number of documents."""

    #: A task's name, or the path of its YAML file.
    task: str
    metric: str | None = None
    count: int | None = None

    @property
    def file(self) -> Path | None:
        """The YAML file; None if the task is given by name."""
        return Path(self.task) if self.task.lower().endswith((".yaml", ".yml")) else None

    def __str__(self) -> str:
        metric = f"#{self.metric}" if self.metric else ""
        return f"{PREFIX}{self.task}{metric}" + (f"@{self.count}" if self.count else "")


def is_task(argument: str | Path) -> bool:
    """Return True if a data argument begins with "lm-eval:"."""
    return str(argument).startswith(PREFIX)


def parse(argument: str) -> Spec:
    """Return the `Spec` in `lm-eval:NAME[#METRIC][@COUNT]`. Raises DataError."""
    match = re.fullmatch(r"lm-eval:([^#@]+)(?:#([^#@]+))?(?:@(\d+))?", argument)
    named = match is not None and re.fullmatch(r"[\w.-]+|.*\.ya?ml", match[1], re.IGNORECASE)
    if match is None or not named or match[3] == "0":
        raise DataError(
            f"{argument!r} is no task: give lm-eval:NAME, or lm-eval:FILE.yaml, with #METRIC and "
            "@COUNT where you want them, as in lm-eval:my_task#acc_norm@500."
        )
    return Spec(match[1], match[2], int(match[3]) if match[3] else None)


def absolute(argument: str) -> str:
    """Return the argument again, with an absolute path if its task is a file. Raises DataError."""
    spec = parse(argument)
    if spec.file is None:
        return str(spec)
    whole = home.expanded(spec.file, DataError).resolve()
    if re.search("[#@]", str(whole)):
        raise DataError(f"task file {whole}: a path with # or @ in it cannot be named here.")
    return str(Spec(str(whole), spec.metric, spec.count))


def check_file(spec: Spec) -> None:
    """Raise UnavailableError if this machine may not read the task's file, which can run code."""
    if spec.file is None:
        return
    allowed = os.environ.get(FOLDERS)
    if allowed is None and "FORGE_WORKER" not in os.environ:
        return
    folders = [Path(folder).resolve() for folder in (allowed or "").split(os.pathsep) if folder]
    if not any(spec.file.resolve().is_relative_to(folder) for folder in folders):
        raise UnavailableError(
            f"task file {spec.file} is not in a folder that this machine allows, because task files "
            f"can run code. The machine's operator can name the folder in {FOLDERS}; the run "
            "is intact."
        )


def benchmark(names: Iterable[str]) -> str | None:
    """Return the first name of a task or dataset that is a well-known benchmark's; None without one."""
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "_", name.rpartition("/")[2].lower())
        if _KNOWN.search(plain):
            return name
    return None


def guard(spec: Spec, names: Iterable[str]) -> None:
    """Raise DataError if one of the names is a well-known benchmark's."""
    if name := benchmark(names):
        raise DataError(
            f"{spec} is of the well-known benchmark {name!r}. A champion that was chosen on it says "
            "nothing when it is measured on it: take other items, or set allow_benchmarks if you "
            "will not report it."
        )


#: Most seconds for reading a task, with the download of its data set if that is allowed.
LONGEST = 1800.0


@dataclass(frozen=True)
class ReadTask:
    """Contents of a task: its rows and names."""

    rows: tuple[dict[str, object], ...]
    #: Names of tasks and of their datasets.
    names: tuple[str, ...]


def rows(arguments: Sequence[str], allow_benchmarks: bool) -> list[dict[str, object]]:
    """Return a list of rows of items, as in JSONL data, of all tasks among the arguments.

    Raises DataError, UnavailableError.
    """
    result = []
    for spec in map(parse, filter(is_task, arguments)):
        if not allow_benchmarks:
            guard(spec, [spec.file.stem if spec.file else spec.task])
        contents = _read(spec)
        if not allow_benchmarks:
            guard(spec, contents.names)
        result += contents.rows
    return result


def _read(spec: Spec) -> ReadTask:
    check(spec)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "agent_forge.evaluation.lm_eval.reader", str(spec), str(out)]
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
    return ReadTask(tuple(document["rows"]), tuple(document["names"]))


def check(spec: Spec) -> None:
    """Raise DataError or UnavailableError if the task cannot be read on this machine."""
    packages.require(str(spec), "lm_eval")
    check_file(spec)
    if spec.file is not None and not spec.file.is_file():
        raise DataError(f"task file {spec.file} does not exist.")
