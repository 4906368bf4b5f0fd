"""Recipes: an id stands for the whole history of a candidate, so it must be exactly its content."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
from pydantic import ValidationError

from agent_forge.events import canonical_json
from agent_forge.evomerge.recipes.recipe import (
    PIPELINES,
    RECIPE,
    Genes,
    Genome,
    Merge,
    Mutate,
    Noise,
    Pipeline,
    Source,
    closure,
    genome,
    label,
)

A, B, C, BASE = (Source(digest=letter * 64) for letter in "abc0")
NOISE = Noise(rate=0.01, sigma=0.2, relative_to="task_vector", seed=9)


def pipeline(number: int = 0, **changes: object) -> Pipeline:
    """A pipeline over the three sources."""
    interpolation, arithmetic, selection = PIPELINES[number]
    fields: dict[str, object] = {
        "inputs": (A.id, B.id, C.id),
        "base": BASE.id,
        "interpolation": interpolation,
        "arithmetic": arithmetic,
        "selection": selection,
        "seed": 1,
    }
    return Pipeline.model_validate({**fields, **changes})


PARENT = pipeline(3)
CHILD = Mutate(parent=PARENT.id, base=BASE.id, noise=NOISE)
GRANDCHILD = Mutate(parent=CHILD.id, base=BASE.id, pipeline=pipeline(3, seed=2))
MERGED = pipeline(0, inputs=(CHILD.id, PARENT.id, GRANDCHILD.id))
MEAN = Merge(method="linear", inputs=(A.id, B.id), base=None)
ALL = {r.id: r for r in (A, B, C, BASE, PARENT, CHILD, GRANDCHILD, MERGED, MEAN)}


def test_ids_are_those_that_were_recorded():
    """Logs name recipes by id, so no change of the code may move one."""
    parent = Pipeline(
        inputs=(A.id,), base=A.id, interpolation="linear", arithmetic="dare", selection="dfs", seed=1
    )
    child = Mutate(parent=parent.id, base=A.id, pipeline=parent, noise=NOISE)
    assert A.id == "18e94c5cd496a044a7d474cd3b2bd84bf320a23f9605d7859627a689cc5f8170"
    assert parent.id == "06d507d13df4ebd97d0dde3ba939e9b77a20d2eca6aca55b1b829da8ebae8bca"
    assert child.id == "89f0e0a333dbf6dddde0341b3d908e1e576bfa6353d12691fd14539513afc0e3"


def test_equal_recipes_have_equal_ids():
    """Two workers that propose the same thing propose one thing."""
    assert pipeline(3).id == PARENT.id
    assert len(PARENT.id) == 64
    assert int(PARENT.id, 16) >= 0


def test_every_field_is_part_of_the_id():
    """Anything that changes the weights must change the id."""
    varied = [
        PARENT,
        pipeline(2),
        pipeline(3, seed=2),
        pipeline(3, base=A.id),
        pipeline(3, inputs=(B.id, A.id, C.id)),
        pipeline(3, genes=Genes(scale=0.9)),
        pipeline(3, genes=Genes(density=0.3)),
        pipeline(3, genes=Genes(weights=(0.2, 0.3, 0.5))),
        pipeline(3, genes=Genes(layers=(0, 1))),
        CHILD,
        Mutate(parent=PARENT.id, base=BASE.id),
        Mutate(parent=PARENT.id, base=BASE.id, noise=NOISE.model_copy(update={"seed": 8})),
        Mutate(parent=PARENT.id, base=BASE.id, pipeline=PARENT),
        MEAN,
        Merge(method="slerp", inputs=(A.id, B.id), base=None),
        Merge(method="linear", inputs=(A.id, B.id), base=None, params={"weights": [1, 2]}),
        A,
        B,
    ]
    assert all(a.id != b.id for a, b in combinations(varied, 2))


def test_an_id_is_frozen():
    """Golden: SHA-256 of the canonical JSON below. Old logs name recipes by it."""
    assert canonical_json(A.model_dump(mode="json")) == (
        '{"digest":"' + "a" * 64 + '","kind":"source"}'
    )
    assert A.id == "18e94c5cd496a044a7d474cd3b2bd84bf320a23f9605d7859627a689cc5f8170"
    assert PARENT.id == "36980bbb7e3f1ee4be354a6ee3d5f1f7606cbc9546680c51e6c27335ea0886dd"


@pytest.mark.parametrize("recipe", ALL.values(), ids=lambda r: r.kind)
def test_a_recipe_survives_the_log(recipe: Pipeline):
    """Through canonical JSON and back: the same object of the same class, with the same id."""
    text = canonical_json(RECIPE.dump_python(recipe, mode="json"))
    back = RECIPE.validate_python(json.loads(text))
    assert back == recipe
    assert type(back) is type(recipe)
    assert back.id == recipe.id


def test_unknown_kinds_fields_and_numbers_are_refused():
    """A recipe that is read wrongly would rebuild something else under an old name."""
    good = PARENT.model_dump(mode="json")
    with pytest.raises(ValidationError):
        RECIPE.validate_python({**good, "kind": "stew"})
    with pytest.raises(ValidationError):
        RECIPE.validate_python({**good, "salt": 1})
    for genes in ({"scale": float("nan")}, {"drop": 1.0}, {"density": 1.1}, {"epsilon": 0.0}):
        with pytest.raises(ValidationError):
            Genes.model_validate(genes)
    for changes in ({"rate": 0.0}, {"sigma": 0.0}, {"relative_to": "weights"}):
        with pytest.raises(ValidationError):
            Noise.model_validate({**NOISE.model_dump(), **changes})


def test_a_recipe_cannot_be_changed():
    """An id that no longer fits its content is worse than none."""
    with pytest.raises(ValidationError):
        PARENT.seed = 4  # pyright: ignore[reportAttributeAccessIssue]


def test_pipelines_are_numbered_by_reading_their_names_as_binary():
    """000 = linear-dare-frankenmerge … 111 = slerp-ties-dfs, first stage first."""
    assert len(set(PIPELINES)) == 8
    bits = {"linear": 0, "slerp": 1, "dare": 0, "ties": 1, "frankenmerge": 0, "dfs": 1}
    for number, (i, a, s) in enumerate(PIPELINES):
        assert number == 4 * bits[i] + 2 * bits[a] + bits[s]
        assert pipeline(number).number == number
    assert pipeline(0).name == "linear-dare-frankenmerge"
    assert pipeline(7).name == "slerp-ties-dfs"


def test_only_a_frankenmerge_without_layers_needs_them():
    """Dfs never reads them."""
    assert pipeline(0).needs_layers
    assert not pipeline(0, genes=Genes(layers=(0, 1))).needs_layers
    assert not pipeline(1).needs_layers


def test_inputs_used_are_everything_that_is_read():
    """Sources read nothing; a merge without a base reads its inputs alone."""
    assert A.inputs_used() == ()
    assert MEAN.inputs_used() == (A.id, B.id)
    assert Merge(method="ties", inputs=(A.id,), base=B.id).inputs_used() == (A.id, B.id)
    assert PARENT.inputs_used() == (A.id, B.id, C.id, BASE.id)
    assert CHILD.inputs_used() == (PARENT.id, BASE.id)


def test_a_genome_is_a_pipeline_and_the_noises_of_the_line():
    """Noise adds up along the line of descent; a pipeline of its own takes the parent's place."""
    assert genome(PARENT, ALL) == Genome(PARENT, ())
    assert genome(CHILD, ALL) == Genome(PARENT, (NOISE,))
    assert genome(GRANDCHILD, ALL) == Genome(pipeline(3, seed=2), (NOISE,))
    later = NOISE.model_copy(update={"seed": 10})
    again = Mutate(parent=CHILD.id, base=BASE.id, noise=later)
    assert genome(again, ALL) == Genome(PARENT, (NOISE, later))


@pytest.mark.parametrize("recipe", [A, MEAN], ids=["source", "merge"])
def test_sources_and_baselines_have_no_genome(recipe: Source | Merge):
    """They are never bred from."""
    with pytest.raises(TypeError, match="has no genome"):
        genome(recipe, ALL)


def test_labels_are_names_for_people():
    """The stage names, the method, or "source"."""
    assert label(A, ALL) == "source"
    assert label(MEAN, ALL) == "linear"
    assert label(PARENT, ALL) == "linear-ties-dfs"
    assert label(GRANDCHILD, ALL) == "linear-ties-dfs"


def test_a_closure_holds_the_whole_history_parents_first():
    """So that it can be rebuilt in one pass; each recipe once."""
    found = closure(MERGED.id, ALL)
    assert set(found) == {A.id, B.id, C.id, BASE.id, PARENT.id, CHILD.id, GRANDCHILD.id, MERGED.id}
    seen: set[str] = set()
    for id_, recipe in found.items():
        assert set(recipe.inputs_used()) <= seen
        seen.add(id_)
    assert list(found)[-1] == MERGED.id
    assert closure(A.id, ALL) == {A.id: A}


def test_a_closure_holds_what_only_a_mutant_s_own_pipeline_reads():
    """Its genes may be built over other inputs than its parent's."""
    other = pipeline(1, inputs=(A.id, MEAN.id, C.id))
    mutant = Mutate(parent=PARENT.id, base=BASE.id, pipeline=other)
    assert MEAN.id in closure(mutant.id, {**ALL, mutant.id: mutant})
