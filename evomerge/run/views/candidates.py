"""Candidates of a merging run: found by name, described, with their folders and ancestors. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent_forge.evaluation.data.outcomes import Outcomes
from agent_forge.events import Envelope
from agent_forge.evomerge.fitness import composite, paired_bootstrap
from agent_forge.evomerge.recipes.recipe import Merge, Mutate, Recipe, Source, closure, label
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.scores import EvaluationKey
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import wording
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import Figure, Measurement, ModelReference, SourceRecord
from agent_forge.runs.kinds.origin import AncestorRecipe, LogModel
from agent_forge.runs.record.events import Exported


def find(state: RunState, candidate: str) -> str:
    """Return the recipe id that is meant by "champion", a fixed merge's name, an id or its beginning.

    Raises NotFoundError.
    """
    if candidate == "champion":
        if state.champion is None:
            raise NotFoundError(f"run {state.run} has no champion yet.")
        return state.champion
    if candidate in state.baselines:
        return state.baselines[candidate]
    alike = [id_ for id_ in state.recipes if candidate and id_.startswith(candidate)]
    if len(alike) != 1:
        what = "is not known" if not alike else "is the beginning of several"
        raise NotFoundError(
            f"candidate {candidate!r} {what} in run {state.run}. It has "
            f"{', '.join(['champion', *state.baselines])}, and candidates by their ids: "
            f"`forge events {state.run}` lists them."
        )
    return alike[0]


def place(state: RunState, recipe_id: str) -> str:
    """Return a recipe's place: "candidate 3/5", "baseline mean", "given" (a source)."""
    for (generation, slot), candidate in state.candidates.items():
        if candidate.recipe_id == recipe_id:
            return f"candidate {generation}/{slot}"
    for name, id_ in state.baselines.items():
        if id_ == recipe_id:
            return f"baseline {name}"
    return "given"


def describe(state: RunState, recipe_id: str, recipe: Recipe) -> str:
    """Return a description of a recipe in a few words, with names of what it is made from."""
    assert state.started
    names = wording.names(state)
    if isinstance(recipe, Source):
        return f"source {names.get(recipe_id, state.started.base.name)}"
    if isinstance(recipe, Mutate):
        parts = (("genes", recipe.pipeline), ("noise", recipe.noise))
        changed = " and ".join(what for what, present in parts if present)
        return f"mutant of {wording.named(recipe.parent, names)} ({changed})"
    inputs = ", ".join(wording.named(id_, names) for id_ in recipe.inputs)
    known_as = recipe.method if isinstance(recipe, Merge) else label(recipe, state.recipes)
    return f"{known_as} of {inputs}"


def ancestry(state: RunState, name: str) -> list[AncestorRecipe]:
    """Return a list of `AncestorRecipe`: the candidate's ('': the champion's), then its ancestors'."""
    family = closure(find(state, name or "champion"), state.recipes)
    return [
        AncestorRecipe(
            id_,
            place(state, id_),
            describe(state, id_, recipe),
            recipe.model_dump(mode="json"),
            recipe.digest if isinstance(recipe, Source) else None,
        )
        for id_, recipe in reversed(family.items())
    ]


def origin(state: RunState, rows: Sequence[Envelope], name: str) -> LogModel:
    """Return a candidate's `LogModel` (digest, folders); '': the champion's. Raise NotFoundError."""
    recipe_id = find(state, name or "champion")
    kind = "champion" if recipe_id == state.champion else "candidate"
    so_far = "" if state.completed or kind != "champion" else ", which has not ended"
    return LogModel(
        name=f"{state.run}-{recipe_id[:8]}",
        what=f"{kind} {recipe_id[:12]} of run {state.run}{so_far}",
        digest=state.built[recipe_id][0],
        folders=tuple(dict.fromkeys(_places(state, rows, recipe_id))),
        run=state.run,
        recipe_id=recipe_id,
    )


def _places(state: RunState, rows: Sequence[Envelope], recipe_id: str) -> list[str]:
    """Return the folders to which a recipe's weights were written, the newest first.

    Two recipes may give the same weights, such as a champion that is a fixed merge. For a source, its
    given folders follow.
    """
    folders: list[str] = []
    digest = state.built[recipe_id][0]
    for row in reversed(rows):
        if row.type == Exported.type:
            event = events.REGISTRY.load(row)
            if isinstance(event, Exported) and event.digest == digest:
                folders.append(event.folder)
    champion = state.built[state.champion][0] if state.champion else None
    if state.submitted and state.submitted.output_dir and digest == champion:
        folders.append(state.submitted.output_dir)
    if state.submitted and state.started:
        folders += [model.path for model, _ in given_sources(state, recipe_id)]
    return folders


def given_sources(state: RunState, recipe_id: str) -> list[tuple[ModelReference, SourceRecord]]:
    """Return (as given, as pinned) of the base and sources with a recipe's id; [] for a merge."""
    assert state.submitted
    assert state.started
    models = (state.submitted.base or state.submitted.sources[0], *state.submitted.sources)
    pairs = zip(models, (state.started.base, *state.started.sources), strict=True)
    return [(model, record) for model, record in pairs if record.recipe_id == recipe_id]


#: Figure of `Components` → what it is, in words.
WORDS = {
    "perplexity": "perplexity",
    "bits_per_byte": "bits per byte",
    "choice_accuracy": "questions right, above chance",
    "solved": "problems solved",
}


def measurements(state: RunState, digest: str) -> list[Measurement]:
    """Return a list of `Measurement` of the model whose weights have `digest`, whole slices first."""
    ids = {id_ for id_, (built, _) in state.built.items() if built == digest}
    if state.started is not None:
        models = (state.started.base, *state.started.sources)
        ids |= {record.recipe_id for record in models if record.digest == digest}
    keys = [key for key in state.evaluations if key[0] in ids]
    keys.sort(key=lambda key: (key[2] is not None, key[1], key[2] or 0))
    return [measurement for key in keys for measurement in _evaluated(state, key)]


def _evaluated(state: RunState, key: EvaluationKey) -> Iterator[Measurement]:
    """Yield `Measurement`s of one evaluation: score and figures, of a draw the score alone."""
    assert state.submitted
    _, slice_, generation = key
    fitness, best = state.fitness(key), state.reference(slice_, generation)
    measured, outcomes = state.components(key), state.outcomes(key)
    if fitness is None or best is None or measured is None or outcomes is None:
        return
    config, drawn = state.submitted.config, generation is not None
    raw, weights = config.normalise == "none", config.fitness_weights
    seed_key = (config.seed, "model", slice_, -1 if generation is None else generation)
    ends = paired_bootstrap.intervals(outcomes, best, weights, raw, *seed_key, skills=config.skills)
    by_architecture = sum(
        weights.parts[name] * fitness.normalised[name] for name in composite.ARCHITECTURE
    )
    low, high = (end + by_architecture for end in ends["judged"])
    where = f"{slice_}, generation {generation}" if drawn else slice_
    count = sum(len(o.nll) + len(o.right) + len(o.solved) for o in outcomes.values())
    score = Figure(value=fitness.scalar, low=low, high=high, n=count)
    yield Measurement(name="score", slice=where, figure=score)
    if not drawn:
        yield from _figures(measured, outcomes, ends, where)


def _figures(
    measured: composite.Components,
    outcomes: Outcomes,
    ends: dict[str, paired_bootstrap.Interval],
    where: str,
) -> Iterator[Measurement]:
    """Yield `Measurement`s: a whole slice's components, and the bits per byte of each domain."""
    windows = {domain: len(outcome.nll) for domain, outcome in sorted(outcomes.items())}
    counts = {
        "solved": sum(len(outcome.solved) for outcome in outcomes.values()),
        "choice_accuracy": sum(len(outcome.right) for outcome in outcomes.values()),
    }
    for name, words in WORDS.items():
        value = getattr(measured, name)
        if value is not None:
            low, high = ends[name]
            n = counts.get(name, sum(windows.values()))
            figure = Figure(value=value, low=low, high=high, n=n)
            yield Measurement(name=words, slice=where, figure=figure)
    for domain, n in windows.items():
        if f"bits_per_byte/{domain}" in ends:
            low, high = ends[f"bits_per_byte/{domain}"]
            value = composite.bits_per_byte(outcomes[domain])
            assert value is not None
            figure = Figure(value=value, low=low, high=high, n=n)
            yield Measurement(name=WORDS["bits_per_byte"], domain=domain, slice=where, figure=figure)
