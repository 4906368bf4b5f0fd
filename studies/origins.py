"""Models of a run that trains from a given model, by name: roles, beginnings of recipe ids. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from agent_forge.events import Envelope
from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import MadeModel, Measurement, SourceRecord
from agent_forge.runs.kinds.origin import AncestorRecipe, LogModel, RunModels
from agent_forge.studies import comparison
from agent_forge.studies.events import MODEL
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.weights.recipes import Source, Train, Transform

if TYPE_CHECKING:
    from agent_forge.studies import AnyStudy

S = TypeVar("S", bound=MakingState)

#: Name → recipe, each after those that it reads; a recipe may have two names.
Recipes = Mapping[str, Making]


class StudyModels(RunModels[S]):
    """The models that runs of a study make and measure."""

    kind: AnyStudy

    @override
    def result(self, state: S) -> MadeModel | None:
        run = self.kind.begun(state)
        model = run.named.get(MODEL) if run else None
        if model is None or model.id not in state.made:
            return None
        return MadeModel(recipe_id=model.id, digest=state.made[model.id].digest)

    @override
    def find(self, state: S, name: str) -> str:
        if state.started is None:
            raise NotFoundError(f"run {state.run} has made no models yet.")
        return find(state, self.kind.named(state), name)

    @override
    def origin(self, state: S, rows: Sequence[Envelope], name: str) -> LogModel:
        study, recipe_id = self.kind, self.find(state, name or MODEL)
        roles = study.roles(state.submitted.config)
        model = origin(state, {**study.named(state), **study.recipes(state)}, recipe_id, roles)
        return replace(model, name=study.result_title) if model.name == MODEL else model

    @override
    def ancestry(self, state: S, name: str) -> list[AncestorRecipe]:
        recipe_id = self.find(state, name or MODEL)
        return ancestry(state, self.kind.named(state), recipe_id)

    @override
    def recipe_id(self, state: S, digest: str) -> str | None:
        return next((id_ for id_, event in state.made.items() if event.digest == digest), None)

    @override
    def measurements(self, state: S, digest: str) -> list[Measurement]:
        """Return the bits per byte measured of models with these weights; [] if items are no texts."""
        if not self.kind.gives_items:
            return []
        ids = {id_ for id_, event in state.made.items() if event.digest == digest}
        return comparison.measurements(state.answers.values(), ids, state.submitted.config.seed)

    @override
    def registered(self, event: Any, state: S) -> list[Plain]:
        if event.type != self.kind.completed.type:
            return []
        study, folder, id_ = self.kind, state.submitted.output_dir, event.models[MODEL].recipe_id
        arms = event.arms.values()
        metrics = next(study.measured(arm) for arm in arms if arm.recipe_id == id_)
        return [
            {
                "name": f"{state.run}-{role}",
                "kind": "champion" if role == MODEL else "base",
                "digest": model.digest,
                "parameters": study.parameters(state),
                "path": f"{folder}/{role}" if folder else None,
                "metrics": metrics if role == MODEL else {},
                "lineage": [state.started.model.digest],
            }
            for role, model in event.models.items()
        ]


def find(state: MakingState, recipes: Recipes, name: str) -> str:
    """Return the recipe id that a name or the beginning of an id means. Raises NotFoundError."""
    ids = {recipes[name].id} if name in recipes else set[str]()
    ids = ids or {recipe.id for recipe in recipes.values() if name and recipe.id.startswith(name)}
    if len(ids) != 1 or not ids <= set(state.made):
        model_names = ", ".join(n for n, recipe in recipes.items() if recipe.id in state.made)
        raise NotFoundError(
            f"run {state.run} has no model {name!r}. It has {model_names or 'none yet'}."
        )
    return ids.pop()


def every(state: MakingState, recipes: Recipes) -> list[str]:
    """Return a list of the ids of those `recipes` whose models are made, each once."""
    ids = dict.fromkeys(recipe.id for recipe in recipes.values())
    return [id_ for id_ in ids if id_ in state.made]


def origin(state: MakingState, recipes: Recipes, name: str, written: Sequence[str]) -> LogModel:
    """Return a model as a LogModel: name, digest, run, recipe id, folder if its name is in `written`.

    Raises NotFoundError.
    """
    recipe_id = find(state, recipes, name)
    role = next(n for n, recipe in recipes.items() if recipe.id == recipe_id)
    out = state.submitted.output_dir
    return LogModel(
        name=role,
        what=f"{role} of run {state.run}",
        digest=state.made[recipe_id].digest,
        folders=(f"{out}/{role}",) if out and role in written else (),
        run=state.run,
        recipe_id=recipe_id,
    )


def ancestry(state: MakingState, recipes: Recipes, name: str) -> list[AncestorRecipe]:
    """Return a list of AncestorRecipes: the model's own, those it was made from, given ones last."""
    recipes_by_id: dict[str, tuple[str, Making]] = {}
    for role, recipe in recipes.items():
        recipes_by_id.setdefault(recipe.id, (role, recipe))
    names = {id_: role for id_, (role, _) in recipes_by_id.items()}
    names |= {Source(digest=record.digest).id: record.name for record in _given(state)}
    ahead, ancestors = [find(state, recipes, name)], dict[str, AncestorRecipe]()
    while ahead:
        next_id = ahead.pop()
        if next_id in recipes_by_id and next_id not in ancestors:
            role, recipe = recipes_by_id[next_id]
            form = recipe.model_dump(mode="json")
            ancestors[next_id] = AncestorRecipe(next_id, role, _words(recipe, names), form)
            ahead += _before(recipe)
    read = {id_ for id_ in ancestors for id_ in recipes_by_id[id_][1].inputs_used()}
    return [*ancestors.values(), *_sources(state, read)]


def _before(recipe: Making) -> list[str]:
    """Return the ids of the recipes that a recipe is made from; the one that it changes is the last."""
    if isinstance(recipe, Train):
        return [recipe.start]
    base_id = _of(recipe)
    return [*(id_ for id_ in recipe.inputs_used() if id_ != base_id), *([base_id] if base_id else [])]


def _sources(state: MakingState, read: Collection[str]) -> Iterator[AncestorRecipe]:
    """Yield the AncestorRecipe of the given model, and of further given ones whose id is in `read`."""
    model = state.started.model
    for record in _given(state):
        source = Source(digest=record.digest)
        if record is model or source.id in read:
            words = f"the model {record.name}, {record.digest[:12]}"
            form = source.model_dump(mode="json")
            yield AncestorRecipe(source.id, "given", words, form, record.digest)


def _given(state: MakingState) -> tuple[SourceRecord, ...]:
    """Return a tuple of records of the models given to the run: the model, if any, then `merges`."""
    first = state.started.model
    return (*([] if first is None else [first]), *getattr(state.started, "merges", ()))


def _words(recipe: Making, names: Mapping[str, str]) -> str:
    """Return a recipe in words, such as "average of 3 snapshots, …"; `names`: recipe id → name."""

    def named(id_: str) -> str:
        return names.get(id_) or id_[:12]

    if isinstance(recipe, Train):
        shares = ", ".join(f"{domain} {share:.0%}" for domain, share in recipe.data.items())
        start = named(recipe.start)
        return f"{recipe.upto:,} steps of {objective(recipe)} on {shares}, from {start}"
    if not recipe.inputs:
        return f"{recipe.operation}, seed {recipe.seed}"
    if recipe.operation == "average@1":
        return f"average of {len(recipe.inputs)} snapshots, the last {named(_of(recipe))}"
    how = recipe.params.get("method")
    if "place" in recipe.params:
        how = f"{recipe.params['place']:g} of the way from {named(recipe.inputs['start'])}"
    if "experts" in recipe.params:
        how = ", ".join(f"{len(recipe.params[kind])} {kind}" for kind in ("models", "experts"))
    return f"{recipe.operation}{f' ({how})' if how else ''} of {named(_of(recipe))}"


def objective(recipe: Train) -> str:
    """Return a training's objective in words, with the rank of its adapters if it has any."""
    params = recipe.params
    if "rank" not in params:
        return recipe.objective
    return f"{params['objective']} by adapters of rank {params['rank']}"


def _of(recipe: Transform) -> str:
    """Return the id of the recipe that an operation changes; "" if it makes new weights.

    Of two ends of a line it is the later one, of an average the last snapshot.
    """
    changed = ("of", "svd", "end", max(recipe.inputs, default=""))
    return next((recipe.inputs[role] for role in changed if role in recipe.inputs), "")
