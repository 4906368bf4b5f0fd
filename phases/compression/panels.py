"""Head, panels, report and card of a compression: front, points, mixtures, matrices. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from typing_extensions import override

from agent_forge.events import Event
from agent_forge.phases.compression import figures, recipes
from agent_forge.phases.compression.figures import MixtureRival, Variant
from agent_forge.phases.compression.recipes import Completed, CompressionState, Encoded, Packed, Subject
from agent_forge.phases.compression.settings import CompressionConfig
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.panels.head import Fact, Head, Result, listed
from agent_forge.runs.panels.panels import Axis, Cell, Column, Front, Metric, Panel, Units, columns
from agent_forge.runs.panels.panels import Point as Dot
from agent_forge.runs.panels.shapes import Limit
from agent_forge.runs.system.durations import size
from agent_forge.studies.events import Observed, Unmeasurable
from agent_forge.studies.run import StudyRun
from agent_forge.studies.study_view import Data, ItemView, Plain

KEPT = Metric(name="kept", unit="share", better="up")
#: Field of a row → column of the table of points.
POINTS = {
    "point": Column(name="point", type="text"),
    "model": Column(name="model", type="text"),
    "codec": Column(name="codec", type="text"),
    "bytes": Column(name="bytes", type="integer", unit="B"),
    "ratio": Column(name="× float32", type="number"),
    "bits_per_weight": Column(name="bits a weight", type="number"),
    "bits_per_byte": Column(name="bits per byte", type="number"),
    "retention": Column(name="retention", type="number", unit="share"),
    "regression": Column(name="worst domain", type="number", unit="share"),
    "weight_error": Column(name="weights' error", type="number", unit="share"),
    "encoding_seconds": Column(name="encoding", type="number", unit="s"),
    "decoding_seconds": Column(name="decoding", type="number", unit="s"),
}
#: What a table of points has besides if one of them could not be measured.
FAILURE = {"failure": Column(name="failed", type="text")}
AGAINST = (
    Column(name="setting", type="text"),
    Column(name="its bytes", type="integer", unit="B"),
    Column(name="mixture", type="text"),
    Column(name="bytes", type="integer", unit="B"),
    Column(name="bits per byte less", type="number"),
    Column(name="low", type="number"),
    Column(name="high", type="number"),
)
MATRICES = columns(
    matrix="text",
    rows="integer",
    columns="integer",
    tried_at="text",
    rise_of_bits_per_byte="number",
    setting="text",
)


# ---- head and panels -----------------------------------------------------------------------------


def result(run: StudyRun) -> Result | None:
    """Return the headline: the share of quality that the chosen model keeps; None before the choice."""
    if not (done := run.state.completed):
        return None
    retention = done.figures["retention"]
    return Result(
        name=done.chosen.point,
        metric=KEPT,
        value=retention.value,
        low=retention.low,
        high=retention.high,
        on=f"{figures.TEST} slice",
        n=retention.n,
        items="documents",
    )


def facts(run: StudyRun) -> tuple[Fact, ...]:
    """Return a tuple of Facts: parameters, bytes in float32, and once it is chosen the file's size."""
    started, done = run.started, run.state.completed
    students = {
        f"parameters of {student.name}": student.source.parameters for student in started.students
    }
    counts = {"parameters": started.source.parameters, **students}
    out = [Fact(name=name, value=value) for name, value in counts.items()]
    out.append(Fact(name="in float32", value=started.float32_bytes, unit="B"))
    if done:
        out.append(Fact(name="the file", value=done.chosen.bytes, unit="B"))
        out.append(Fact(name="times smaller", value=done.figures["ratio"].value))
    return tuple(out)


def panels(run: StudyRun) -> list[Panel]:
    """Return the panels of front, points, mixtures and matrices; empty before a point is measured."""
    if not figures.attempted(run):
        return []
    pairs = figures.rivals(run)
    return [_front(run), _points(run), *([_against(pairs)] if pairs else []), _matrices(run)]


def _front(run: StudyRun) -> Front:
    """Return the panel that plots all points: bytes of the file against bits per byte."""
    measured, bits = figures.points(run), figures.bits_of(run, run.started)
    front_names = {p.name for p in figures.front(measured)}
    dots = tuple(
        Dot(
            id=p.name,
            label=p.name,
            series=recipes.prefix(p.subject).rstrip(":") or p.series,
            values=(p.bytes, p.bits),
            kept=p.name in front_names,
        )
        for p in measured
        if p.bits is not None
    )
    config = run.settings
    limits = [Limit(at=bits, says="the given model")] if bits else []
    if config.budget:
        limits.append(Limit(at=config.budget, says="budget", axis=0))
    elif bits:
        most = bits / config.retention
        limits.append(Limit(at=most, says=f"{100 * config.retention:g} % retention, as asked"))
    return Front(
        name="front",
        title="Size and quality",
        says="Bytes of whole files against bits per byte on the selection slice; a point of the front "
        f"is beaten by no other in both. {_rule(config)}",
        axes=(
            Axis(name="bytes", unit="B", log=True, better="down"),
            Axis(name="bits per byte", better="down"),
        ),
        points=dots,
        chosen=run.state.completed.chosen.point if run.state.completed else None,
        limits=tuple(limits),
    )


def _rule(config: CompressionConfig) -> str:
    """Return a sentence that says which point the settings choose."""
    if config.budget:
        return f"Chosen is the point with the fewest bits per byte within {size(config.budget)}."
    words = f"{100 * config.retention:g} % of the given model's quality"
    if (most := config.regression) is not None:
        words += f" and loses at most {100 * most:g} % in any domain"
    return f"Chosen is the smallest point that keeps {words}."


def _points(run: StudyRun) -> Units:
    """Return the table panel of all points: bytes, bits per byte, retention."""
    points, columns = rows(run), POINTS
    says = "Bytes are those of whole files, embedding included, tokenizer not. The worst domain is the "
    says += "one with the largest rise of bits per byte over the given model's. " + _rule(run.settings)
    if failed := sum(row["failure"] is not None for row in points):
        columns = POINTS | FAILURE
        says += f" {failed} of {len(points)} could not be measured, and are never chosen."
    return Units(
        name="points",
        title="Points",
        says=says,
        unit="point",
        columns=tuple(columns.values()),
        rows=tuple(tuple(row[field] for field in columns) for row in points),
    )


def _against(pairs: Sequence[MixtureRival]) -> Units:
    """Return the table panel of mixtures beside single settings that take at least as many bytes."""
    rows = tuple(
        (
            pair.single.name,
            pair.single.bytes,
            pair.mixture.name,
            pair.mixture.bytes,
            -pair.difference.value,
            *sorted(-end for end in (pair.difference.low, pair.difference.high) if end is not None),
        )
        for pair in pairs
    )
    ahead = sum((pair.difference.high or 0.0) < 0 for pair in pairs)
    return Units(
        name="mixtures",
        title="Mixtures against single settings",
        says="The largest mixture that takes no more bytes than a setting for all matrices, and the "
        "bits per byte that it saves on the selection slice, with the interval of a paired bootstrap "
        f"over documents. {ahead} of {len(rows)} intervals are above zero.",
        unit="setting",
        columns=AGAINST,
        rows=rows,
    )


def _matrices(run: StudyRun) -> Units:
    """Return the table panel of matrices: the rise of bits with each alone, and its chosen setting."""
    says = "What the model loses with a matrix alone at a setting, and its setting now."
    if refused := len(figures.fallbacks(run)):
        says += f" {refused} times a codec did not take a matrix, which then has 16 bits."
    return Units(
        name="matrices",
        title="Matrices",
        says=says,
        unit="matrix",
        columns=MATRICES,
        rows=tuple(row for subject in recipes.subjects(run.started) for row in _tried(run, subject)),
    )


def _tried(run: StudyRun, subject: Subject) -> list[tuple[Cell, ...]]:
    """Return a table row for each matrix of a model; its setting is None if another model is chosen."""
    id_ = recipes.source(subject)
    tried = run.known.get(figures.PROBES, {}).get(id_, {})
    rises = run.known.get(figures.RISES, {}).get(id_, {})
    chosen, taken = figures.choose(run), dict[str, str]()
    if chosen and chosen.subject is subject:
        names = [matrix.name for matrix in subject.matrices]
        taken = dict(zip(names, chosen.assignment, strict=True))
    before = recipes.prefix(subject)
    return [
        (
            f"{before}{m.name}",
            m.rows,
            m.columns,
            tried[m.name].setting if m.name in tried else None,
            rises.get(m.name),
            taken.get(m.name),
        )
        for m in subject.matrices
    ]


# ---- table, report and card ------------------------------------------------------------------------


def rows(run: StudyRun) -> list[Plain]:
    """Return a row, field → value, for each point, the fewest bytes first.

    `failure` says why a point could not be measured; its bits per byte are then None.
    """
    front_names = {p.name for p in figures.front(figures.points(run))}
    return [_row(run, point, point.name in front_names) for point in figures.attempted(run)]


def _row(run: StudyRun, point: Variant, on_front: bool) -> dict[str, object]:
    pairs, of = zip(point.subject.matrices, point.assignment, strict=True), point.subject
    events = [e for m, s in pairs if (e := figures.encoded(run, of, m.name, s)) is not None]
    size, whole = point.bytes, run.started.float32_bytes
    return {
        "point": point.name,
        "model": recipes.name(of),
        "codec": point.series,
        "bytes": size,
        "ratio": whole / size,
        "bits_per_weight": 32 * size / of.float32_bytes,
        "bits_per_byte": point.bits,
        "retention": point.retention,
        "regression": point.regression,
        "weight_error": _pooled(of, events),
        "encoding_seconds": sum(e.seconds for e in events),
        "decoding_seconds": sum(e.decoding_seconds for e in events),
        "front": on_front,
        "failure": point.failure,
    }


def _pooled(subject: Subject, events: Sequence[Encoded]) -> float:
    """Return the mean relative squared error of the encoded matrices, weighted by their sizes."""
    sizes = {m.name: m.rows * m.columns for m in subject.matrices}
    weights = [sizes[e.recipe.params["tensor"]] for e in events]
    total = sum(weights)
    return sum(e.error * w for e, w in zip(events, weights, strict=True)) / total


def report(run: StudyRun) -> dict[str, object]:
    """Return the report of a completed compression as JSON data."""
    done = run.state.completed
    return {
        "model": run.started.source.name,
        "chosen": done.chosen.model_dump(),
        "figures": {name: figure.model_dump() for name, figure in done.figures.items()},
        "given": {
            "bits_per_byte": figures.bits_of(run, run.started),
            "bytes": run.started.bytes,
            "float32_bytes": run.started.float32_bytes,
        },
        "students": [
            {
                "name": student.name,
                "model": student.source.name,
                "bits_per_byte": figures.bits_of(run, student),
                "float32_bytes": student.float32_bytes,
            }
            for student in run.started.students
        ],
        "points": rows(run),
        "mixtures": [_pair(rival) for rival in figures.rivals(run)],
        "not_taken": figures.fallbacks(run),
    }


def _pair(pair: MixtureRival) -> dict[str, object]:
    """Return a report's fields for a mixture beside a single setting of at least as many bytes."""
    return {
        "setting": pair.single.name,
        "setting_bytes": pair.single.bytes,
        "mixture": pair.mixture.name,
        "mixture_bytes": pair.mixture.bytes,
        "difference": pair.difference.model_dump(),
    }


def card(run: StudyRun) -> str:
    """Return the Markdown card of the compressed model."""
    done, name = run.state.completed, run.started.source.name
    retention = done.figures["retention"]
    lines = [
        f"# {name}, compressed",
        "",
        *_student(run),
        f"{done.chosen.bytes:,} bytes, {done.figures['ratio'].value:.1f} times smaller than float32, "
        f"by the point {done.chosen.point} of the curve below. On the test slice it keeps "
        f"{retention.value:.4f} of the quality ({retention.low:.4f} to {retention.high:.4f}, "
        f"{retention.n} documents): "
        "bits per byte of the given model over its own.",
        "",
        "    forge decompress model.forge FOLDER",
        "",
        "    from agent_forge import load, load_tokenizer",
        '    model, tokenizer = load("model.forge"), load_tokenizer("model.forge")',
        "",
        "Measured on the selection slice, which the point was chosen by:",
        "",
        *table(run),
        "",
        f"Made by run {run.state.run}.",
        "",
    ]
    return "\n".join(lines)


def _student(run: StudyRun) -> list[str]:
    """Return two lines that name the student in the chosen file; none for the given model."""
    chosen = figures.choose(run)
    assert chosen is not None
    subject = chosen.subject
    if subject is run.started:
        return []
    student_size, given_size = subject.source.parameters, run.started.source.parameters
    name = recipes.name(subject)
    return [
        f"The file holds the student {name}: {student_size:,} parameters instead of {given_size:,}.",
        "",
    ]


def table(run: StudyRun) -> list[str]:
    """Return the lines of a Markdown table of all points; those of the front are marked."""
    lines = [
        "| point | bytes | × float32 | bits a weight | bits per byte | retention | "
        "worst domain | front |",
        "|---|---:|---:|---:|---:|---:|---:|:-:|",
    ]
    for row in rows(run):
        measured = (
            f"{row['bits_per_byte']:.4f} | {row['retention']:.4f} | {row['regression']:+.2%}"
            if row["failure"] is None
            else f"failed: {row['failure']} | | "
        )
        lines.append(
            f"| {row['point']} | {row['bytes']:,} | {row['ratio']:.2f} | {row['bits_per_weight']:.3f} "
            f"| {measured} | {'•' if row['front'] else ''} |"
        )
    return lines


def lines(run: StudyRun) -> list[str]:
    """Return lines of text for a terminal: the points of the front, failed ones, and the chosen one."""
    points, done = rows(run), run.state.completed
    share, ratio, chosen = done.figures["retention"], done.figures["ratio"], done.chosen
    return [
        *(
            f"{row['point']:14s} {row['bytes']:>14,} bytes  {row['ratio']:6.2f} × smaller  "
            f"{row['bits_per_byte']:.4f} bits per byte  keeps {row['retention']:.4f}"
            for row in points
            if row["front"]
        ),
        *(
            f"{row['point']:14s} {row['bytes']:>14,} bytes  failed: {row['failure']}"
            for row in points
            if row["failure"] is not None
        ),
        f"chosen: {chosen.point}, {chosen.bytes:,} bytes, {ratio.value:.2f} times smaller than "
        f"float32; on the test slice it keeps {share.value:.4f} ({share.low:.4f} to {share.high:.4f})",
    ]


def next_steps(run: StudyRun, name: str) -> list[str]:
    """Return a list of one command, to decode the chosen file; [] without an output folder."""
    out = run.submitted.output_dir
    return [f"forge decompress {out}/{recipes.FILE} DIR"] if out else []


class CompressionView(ItemView[CompressionState]):
    """Views of a compression."""

    @override
    def names(self, state: CompressionState) -> dict[str, str]:
        run = self.kind.begun(state)
        if run is None:
            return {}
        every = recipes.subjects(run.started)
        prefixes = {recipes.source(subject): recipes.prefix(subject) for subject in every}
        coded = recipes.encodings(run).items()
        names = {id_: f"{prefixes[of]}{m} at {s}" for (of, m, s), (id_, _) in coded}
        names |= {recipes.source(subject): recipes.name(subject) for subject in every}
        return names | {p.recipe_id: p.name for p in run.known.get(figures.POINTS, ())}

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        match type_:
            case "submitted":
                return data["model"][0]["name"]
            case "started":
                count = sum(len(of["matrices"]) for of in (data, *data.get("students", ())))
                return f"{count} matrices, {data['calibrated']:,} tokens of calibration"
            case "encoded":
                return f"{name}: {data['bytes']:,} bytes, error {data['error']:.4g}"
            case "refused" | "unmeasurable":
                return f"{name}: {data['reason']}"
            case "packed":
                return f"{name}: {data['bytes']:,} bytes"
            case "observed":
                values = data["values"].values()
                bits = math.fsum(values) / len(values)
                return f"{name}, {data['on']}: {bits:.4f} bits per byte"
            case "completed":
                share, chosen = data["figures"]["retention"]["value"], data["chosen"]
                return f"{chosen['point']}: {chosen['bytes']:,} bytes, keeps {share:.4f}"
        return None

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        id_ = key.rpartition("/")[2]
        if key.startswith("observe/"):
            return f"measure {names.get(id_, id_[:12])}"
        if key.startswith("make/"):
            return f"make {names.get(id_, id_[:12])}"
        return "read model, items and inputs of layers" if key == "start" else ""

    @override
    def row(self, entry: Plain, event: Event) -> None:
        if isinstance(event, Encoded | Packed | Observed | Unmeasurable):
            entry["done"] = (entry["done"] or 0) + 1
        if isinstance(event, Completed):
            entry |= listed(KEPT, event.figures["retention"].value, f"{figures.TEST} slice")

    @override
    def progress(self, state: CompressionState) -> tuple[int, int | None]:
        """Return (tasks done, tasks that are known so far); (0, None) before the start."""
        run = self.kind.begun(state)
        if run is None:
            return 0, None
        done = len(state.made) + len(state.refused) + len(state.answers)
        config, every = run.settings, recipes.subjects(run.started)
        total = len(recipes.encodings(run)) + (2 * len(run.started.settings) + 1) * len(every) + 2
        if config.mixtures and len(config.settings) > 1:
            total += sum(len(subject.matrices) + 2 * config.mixtures for subject in every)
        return done, done if state.completed else max(total, done + 1)

    @override
    def head(self, state: CompressionState) -> Head:
        run = self.kind.begun(state)
        if run is None:
            return default_panels.head(self.kind, state)
        return default_panels.head(self.kind, state, result(run), facts(run))

    @override
    def panels(self, state: CompressionState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        run = self.kind.begun(state)
        tasks, further = default_panels.tasks(self.kind, state), len(state.made) + len(state.refused)
        says = f"{tasks.says} {further:,} more encoded or packed, and are not listed."
        tasks = tasks.model_copy(update={"says": says if further else tasks.says})
        return [*(panels(run) if run else ()), tasks]

    @override
    def fields(self, state: CompressionState) -> dict[str, object]:
        run = self.kind.begun(state)
        return {"points": rows(run) if run else []}
