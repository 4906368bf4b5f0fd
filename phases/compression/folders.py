"""Results of a compression as files, their verification, and the forecast of a run.

    OUT/model.forge        the file that `forge decompress` and `agent_forge.load` read
    OUT/README.md          the card: the curve, what was chosen, how to use it
    OUT/compression.json   the report, written last

Folders with decoded weights can be made as well. A forecast encodes some rows at every setting and
records nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from agent_forge.events import Event
from agent_forge.phases.compression import panels, recipes
from agent_forge.phases.compression.figures import SELECTION
from agent_forge.phases.compression.recipes import (
    FILE,
    ROLE,
    CompressionState,
    Encoded,
    MatrixRecord,
    Packed,
    Subject,
    Submitted,
)
from agent_forge.phases.compression.work import Context, OpenedModel, coding_errors
from agent_forge.runs.errors import ConfigError, ForgeError, SourceError
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.forecast import Amount, Forecast
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.system.durations import duration, least
from agent_forge.studies.making import model_files
from agent_forge.studies.making.making import MakeTask
from agent_forge.studies.work import begun
from agent_forge.weights.folders import companions, stand_ins
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, holds, publish, write_weights
from agent_forge.weights.formats import coded_file
from agent_forge.weights.formats.coded_file import CodedFile, CodedTensor
from agent_forge.weights.operations.coding import ROWS
from agent_forge.weights.recipes import Transform
from agent_forge.weights.storage.output_folder import check_target, mark_of
from agent_forge.weights.storage.weight_cache import Artifacts

Say = Callable[[str], None]


def write(home: Home, state: CompressionState, out: Path) -> dict[str, object]:
    """Write file, card and report, whole or not at all; return the report with run and folder.

    Raises the errors of `check_target`.
    """
    out = check_target(out)
    context, chosen = Context.opened(state, Artifacts.of(home)), state.completed.chosen
    report = panels.report(context.run)

    def fill(folder: Path) -> None:
        recipe = _recipe(state, chosen.recipe_id)
        place = context.model_of(recipe).place
        written = context.write(recipe, folder / FILE, companions.contents(place))
        if written.digest != chosen.digest:
            raise SourceError(
                f"the file decodes to {written.digest[:12]}, and the log says {chosen.digest[:12]}."
            )
        (folder / "README.md").write_text(panels.card(context.run), "utf-8")
        whole = {**report, "run": state.run, "chain_head": state.head, "digest": chosen.digest}
        (folder / mark_of("compression")).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")

    publish(out, fill)
    return {**report, "run": state.run, "folder": str(out)}


def _recipe(state: CompressionState, recipe_id: str) -> Transform:
    event = state.made[recipe_id]
    assert isinstance(event, Packed)
    return event.recipe


def materialise(home: Home, state: CompressionState, recipe_id: str, folders: Sequence[Path]) -> str:
    """Return the folder of a decoded model; it is written into the last of `folders` if none has it.

    Raises ForgeError.
    """
    digest = state.made[recipe_id].digest

    def written(place: Path) -> None:
        cache = Artifacts.of(home)
        # What the cache has needs no decoding, and so no look at the machine.
        context = Context(state, cache) if cache.files(digest) else Context.opened(state, cache)
        _publish(context, place, _recipe(state, recipe_id))

    return model_files.settled(folders, lambda place: _holds(place, digest), written)


def _publish(context: Context, place: Path, recipe: Transform) -> None:
    """Write a decoded model as an ordinary folder to `place`, whole or not at all."""
    weights, opened = context.weights(recipe), context.model_of(recipe)

    def fill(folder: Path) -> None:
        write_weights(folder, weights, SHARD_BYTES)
        config = companions.as_text(companions.cleaned(dict(opened.model.config)))
        (folder / companions.CONFIG).write_text(config, "utf-8")
        companions.write(opened.place, folder)

    publish(place, fill)


def _holds(folder: Path, digest: str) -> bool:
    """Return True if a folder has the weights with this digest."""
    try:
        return holds(folder, digest)
    except (SourceError, OSError):
        return False


def files(state: CompressionState, cache: Artifacts) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) pairs of the chosen weights, made again if not in the cache."""
    chosen = state.completed.chosen
    recipe = _recipe(state, chosen.recipe_id)
    again = {chosen.digest: lambda: Context.opened(state, cache).weights(recipe)}
    return model_files.files(cache, again)


# ---- the part of an audit that needs weights -----------------------------------------------------


def rebuild(
    state: CompressionState, cache: Artifacts, ids: Sequence[str], say: Say
) -> Iterator[Finding]:
    """Yield a finding for each encoding or model that, made again, differs from the log."""
    try:
        context = Context.opened(state, cache)
    except ForgeError as error:
        yield Finding("unchecked", "weights", f"nothing can be made again: {error}")
        return
    for id_ in ids:
        yield from _again(context, state.made[id_], say)


def _again(context: Context, event: Event, say: Say) -> Iterator[Finding]:
    """Yield a finding if one result, made again, differs from its event."""
    assert isinstance(event, Encoded | Packed)
    what = f"{event.recipe.operation} {event.recipe_id[:12]}"
    try:
        repeat = context.carry_out(MakeTask(event.recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{what}: {error}")
        return
    luck = {"seconds", "decoding_seconds"}
    if repeat.model_dump(exclude=luck) != event.model_dump(exclude=luck):
        yield Finding("error", "weights", f"{what}: made again it is not what the log says")
    else:
        say(f"{what} again: {event.bytes:,} bytes, digest {event.digest[:12]} as recorded")


def check(
    place: Path, document: dict[str, object], state: CompressionState | None
) -> Iterator[Finding]:
    """Yield findings: the file does not decode as its report or run says, or there is no `state`."""
    if state is None:
        yield Finding("unchecked", "files", f"run {document['run']} is not in this log")
    try:
        opened_file = CodedFile(place / FILE)
        for _ in opened_file.tensors():
            pass
    except ForgeError as error:
        yield Finding("error", "files", str(error))
        return
    file_digest, stated_digest = opened_file.header.digest, str(document.get("digest"))
    what = f"{place / FILE} decodes to {file_digest[:12]}"
    if file_digest != stated_digest:
        yield Finding("error", "files", f"{what}, and the report beside it says {stated_digest[:12]}")
    if state is not None and state.completed and file_digest != state.completed.chosen.digest:
        chosen = state.completed.chosen.digest
        yield Finding("error", "files", f"{what}, and the run chose {chosen[:12]}")


# ---- the forecast --------------------------------------------------------------------------------

#: Documents of a domain that are scored, and numbers of a matrix that are encoded, in whole rows.
PROBED, CODED = 8, 1 << 18


def forecast(kind: Kind, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return the seconds, memory and disk that a run needs here. Raises the errors of a start."""
    context, opening = begun(kind, Context, submitted, cache)
    state = context.state
    samples = {d: texts[:PROBED] for d, texts in context.texts(SELECTION).items()}
    every = (text for texts in context.texts(SELECTION).values() for text in texts)
    whole, read, passes = (
        sum(len(document.text.encode("utf-8", "replace")) for document in every),
        0,
        0,
    )
    scoring = encoding = stored_bytes = 0.0
    for subject, opened in zip(recipes.subjects(state.started), context.models, strict=True):
        sizes: dict[str, tuple[int, ...]] = {}
        took = least(
            lambda of=opened, to=sizes: to.update(of.scored(of.model.weights, samples, "given")[1])
        )
        read, count = sum(map(sum, sizes.values())), _passes(state, subject)
        scoring, passes = scoring + count * took * whole / read, passes + count
        seconds, bytes_ = _encodings(context, subject, opened)
        encoding, stored_bytes = encoding + seconds, stored_bytes + bytes_
    numbers = sum(model.float32_bytes // 4 for model in recipes.subjects(state.started))
    return Forecast(
        Amount(
            opening + encoding + scoring,
            "timed here: rows of each kind of matrix took every setting, and all matrices "
            f"{duration(encoding)} at its pace; {passes} measurements of {whole:,} bytes of text "
            f"{duration(scoring)}, at the pace of {read:,} of them; the start {duration(opening)}. "
            "Writing and decoding files come on top",
        ),
        Amount(
            stored_bytes + 4 * numbers,
            "the codes of those rows, for all matrices; and the chosen weights in float32",
        ),
        Amount(12 * numbers, "counted: models as given, decoded, and in a model's object"),
        {ROLE: stand_ins.write(context.given.place, folder / "given", ROLE)},
    )


def _passes(state: CompressionState, subject: Subject) -> int:
    """Return the number of a model's measurements; those on the test slice count like the others."""
    config, points = state.submitted.config, len(state.started.settings)
    mixing = config.mixtures and len(config.settings) > 1
    last = 3 if subject == state.started else 1
    return points + last + (len(subject.matrices) + config.mixtures if mixing else 0)


def _encodings(context: Context, subject: Subject, opened: OpenedModel) -> tuple[float, float]:
    """Return (seconds, bytes) of all matrices at all settings, estimated from some rows.

    A codec's pace depends on the columns, and embeddings have parameters of their own: the largest
    matrix of each kind stands for the others.
    """
    grams = opened.grams if subject.grams else {}
    seed = context.state.submitted.config.seed
    kinds: dict[tuple[int, bool], list[MatrixRecord]] = {}
    for matrix in subject.matrices:
        kinds.setdefault((matrix.columns, matrix.embedding), []).append(matrix)
    seconds = bytes_ = 0.0
    for (columns, embedding), matrices in kinds.items():
        largest = max(matrices, key=lambda m: m.rows)
        count = max(1, min(largest.rows, CODED // columns))
        share = sum(m.rows for m in matrices) / count
        tensor = opened.model.weights[largest.name][:count]
        gram, rows = grams.get(largest.name), grams.get(f"{ROWS}{largest.name}")
        arguments = (gram, seed, None if rows is None else rows[:count])
        for setting in context.state.started.settings:
            params = setting.embedding if embedding else setting.params
            code = partial(coded_file.code, largest.name, tensor, setting.codec, params, *arguments)
            errors, coded = partial(coding_errors, matrix=tensor, grams=grams), list[CodedTensor]()
            try:
                seconds += share * least(lambda code=code, to=coded: to.append(code()))
                seconds += share * least(lambda errors=errors, of=coded: errors(of[-1]))
            except ConfigError:  # it stays plain
                continue
            bytes_ += share * coded[-1].coded.bytes
    return seconds, bytes_
