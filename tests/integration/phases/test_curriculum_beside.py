"""Curriculum runs with chaos, dreams, a self-model, stages and tools: trained, dreamt, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import Qwen2ForCausalLM

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.phases.curriculum import items, tools
from agent_forge.phases.curriculum.recipes import Dream, Dreamed
from agent_forge.phases.curriculum.script import Curriculum
from agent_forge.phases.curriculum.work import Context
from agent_forge.runs.errors import ConfigError, DataError, SourceChangedError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies.making.making import MakingState
from agent_forge.tools.tasks import episodes, of_level
from agent_forge.tools.tasks.episodes import Player
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete
from agent_forge.worker.commands import submit
from testing.miniatures import curriculum_runs
from testing.models import able_toy, symbol_models
from testing.models.toys import Toys
from testing.verification import verified_again
from tests.golden.test_golden import rows_of
from tests.integration.kinds.test_forgeries import edit, relinked

LOG = Path("tests/golden/curriculum-3.jsonl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState]:
    """A finished run with all arms that follow success."""
    folder = tmp_path_factory.mktemp("beside")
    home = Home(folder / "home")
    model = symbol_models.write(folder / "model")
    curriculum_runs.submit(home, model, **curriculum_runs.BESIDE)
    return home, curriculum_runs.finish(home)


@pytest.mark.slow
def test_a_run_with_additions_completes_with_an_honest_history(made) -> None:
    home, state = made
    assert state.status == "completed"
    assert audit.audit(curriculum_runs.rows(home)) == []
    run = Curriculum().run(state)
    for recipe in run.recipes.values():
        if isinstance(recipe, Train):
            assert complete(recipe) == recipe
    added = {one for course in run.courses.values() for event in course.mixes for one in event.added}
    assert added == {"chaos", "dreams", "self_model"}


@pytest.mark.slow
def test_everything_is_made_again_by_verify(made) -> None:
    """From nothing: what was dreamt is dreamt again where the cache lacks it."""
    home, state = made
    dreamt = [one for one in state.answers.values() if isinstance(one, Dreamed)]
    assert dreamt, "the model of this test passes a level"
    found, said = verified_again(home, state.run)
    assert found == []
    assert [line for line in said if "as recorded" in line]


@pytest.mark.slow
def test_what_was_dreamt_is_kept_and_another_dream_is_refused(made, tmp_path: Path) -> None:
    """The model's own answers, with the number of right ones; without the cache the same again."""
    home, state = made
    context = Context.opened(state, Artifacts.of(home))
    event: Any = next(one for one in state.answers.values() if isinstance(one, Dreamed))
    again = context._written(Dream(event.recipe_id, tuple(sorted(event.cells))))
    empty = Artifacts.of(Home(tmp_path / "other"))
    found = items.kept(event, empty, lambda: again)
    assert set(found) == set(event.cells)
    for cell, (ids, right) in again.items():
        assert found[cell].tolist() == ids.tolist()
        assert right == event.cells[cell].right
    other = {cell: (ids[::-1].copy(), right) for cell, (ids, right) in again.items()}
    third = Artifacts.of(Home(tmp_path / "third"))
    with pytest.raises(SourceChangedError, match="dreams dreamt again have the digest"):
        items.kept(event, third, lambda: other)


@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("mix_chosen", 29, returned=True), "does not say what follows"),
        (edit("mix_chosen", 1, added=["chaos"]), "does not follow"),
        (edit("dreamed", 0, recipe_id="0" * 64), "another model dreamt"),
        (edit("dreamed", 0, cells={}), "does not say what follows"),
    ],
)
def test_forgeries_are_found(forgery: Any, what: str) -> None:
    found = [str(one.message) for one in audit.audit(relinked(forgery(rows_of(LOG))))]
    assert any(what in one for one in found), found


# ---- tools -------------------------------------------------------------------------------------

TOOLS: dict[str, Any] = {
    **curriculum_runs.QUICK,
    "families": ["brackets", "tool-table"],
    "levels": 1,
    "arms": ["adaptive"],
    "segments": 1,
    "tokens": 480,
}


def test_a_demonstration_is_a_call_and_an_answer_each_after_all_that_came_before() -> None:
    tokenizer = able_toy.tokenizer()
    spoken = episodes.chosen(tokenizer, "tags", None, tools.usable({"table"}), [])
    (item,) = of_level("table", 1, 0, "train", 1)
    call, answer = tools.demonstrations([item], spoken)
    (asked,) = item.questions
    key = asked.removeprefix("value of ")
    assert tokenizer.decode(call.prompt) == f"{asked}\n"
    assert tokenizer.decode(call.answer) == f"<call>table: {key}</call>"
    told = f"{asked}\n<call>table: {key}</call><result>{item.answer}</result>"
    assert tokenizer.decode(answer.prompt) == told
    assert tokenizer.decode(answer.answer[:-1]) == item.answer
    assert answer.answer[-1] == tokenizer.eos_token_id


def test_a_program_s_value_is_its_answer_and_sessions_go_on_from_each_other() -> None:
    """Nothing runs to demonstrate `python`; what one session puts the next one gets."""
    tokenizer = able_toy.tokenizer()
    spoken = episodes.chosen(tokenizer, "tags", None, tools.usable({"python", "get"}), [])
    (item,) = of_level("execution", 1, 0, "train", 1)
    assert f"<result>{item.answer}</result>" in tokenizer.decode(
        tools.demonstrations([item], spoken)[1].prompt
    )
    (item,) = of_level("memory", 1, 0, "train", 1)
    put, kept, get, answer = tools.demonstrations([item], spoken)
    assert tokenizer.decode(put.answer).startswith("<call>put: ")
    assert tokenizer.decode(kept.answer[:-1]) == tools.NOTED
    assert tokenizer.decode(get.prompt) == f"{item.questions[1]}\n"
    assert f"<result>{item.answer}</result>" in tokenizer.decode(answer.prompt)


@pytest.mark.parametrize("family", ["table", "calculation", "retrieval", "memory"])
def test_a_model_that_says_what_is_demonstrated_solves_the_tasks(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that answers without a call, or with a wrong answer, solves none."""
    some = of_level(family, 1, 0, "selection", 3)
    names = {name for item in some for name in item.tools}
    spoken = episodes.chosen(able_toy.tokenizer(), "tags", None, tools.usable(names), some)
    known = {one.prompt: one.answer for one in tools.demonstrations(some, spoken)}
    module = Qwen2ForCausalLM(able_toy.config(32, 256, 1))
    model = ResidentModel.from_module(module)

    def verdicts(said: Any) -> list[float]:
        def turns(self: Player, contexts: Any, names: Any) -> list[Any]:
            return [np.asarray(said(tuple(map(int, one))), np.int32) for one in contexts]

        monkeypatch.setattr(Player, "_turns", turns)
        return [*tools.solved(model, spoken, {"a/1": some}, None)["a/1"]]

    assert verdicts(known.__getitem__) == [1.0] * 3
    right = [spoken.tokenizer.encode(item.answer or "") for item in some]
    assert verdicts(lambda context: right[0]) == [0.0] * 3
    ends = lambda ids: ids[-1] == spoken.tokenizer.eos_token_id  # noqa: E731
    wrong = spoken.tokenizer.encode("nothing")
    assert verdicts(lambda c: wrong if ends(known[c]) else known[c]) == [0.0] * 3


@pytest.mark.slow
def test_a_run_with_tools_pins_its_tasks(tmp_path: Path) -> None:
    model = able_toy.train(tmp_path / "model", "", ["table"], steps=1, count=10)
    home = Home(tmp_path / "home")
    curriculum_runs.submit(home, model, **TOOLS)
    state = curriculum_runs.finish(home)
    assert audit.audit(curriculum_runs.rows(home)) == []
    assert state.started.pool["tool-table/1"] == 80  # 40 tasks of two turns
    seen = Curriculum().run(state).seen["adaptive"]
    assert {name: len(some) for name, some in seen.items.items()} == {
        "brackets/1": 12, "tool-table/1": 12
    }  # fmt: skip
    other = Curriculum.state()
    other.__dict__.update(state.__dict__)
    other.started = state.started.model_copy(update={"tool_items": "0" * 64})
    with pytest.raises(DataError, match="the tool tasks that are made here are not those"):
        Context.opened(other, Artifacts.of(home))


def test_tool_families_that_cannot_run_are_refused(toys: Toys) -> None:
    model = {"model": [str(toys.base)]}

    def refused(match: str, **settings: Any) -> None:
        asked = RunRequest("curriculum", {**TOOLS, **settings}, model)
        with pytest.raises(ConfigError, match=match):
            submit.check(submit.plan(asked))

    refused("there are no tool tasks 'poetry'", families=["tool-poetry"])
    refused("tool-repair is left to baking", families=["tool-repair"])
    refused("has 5 levels, and levels is 6", levels=6)
    refused("needs a context of", context=16)
    refused("after block 9", arms=["self_model"], self_layer=9)
