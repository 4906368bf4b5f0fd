"""Student runs in miniature: what is trained, compared, written, shown, verified and refused."""

from __future__ import annotations

import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.cli import kind_views
from agent_forge.phases.student import Student
from agent_forge.runs.errors import ConfigError, DataError, NotFoundError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.lists import model_registry
from agent_forge.studies import comparison
from agent_forge.studies.making.making import MakingState
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete
from testing.miniatures import student_runs
from testing.models.toys import Toys
from testing.verification import (
    announced,
    assert_amounts,
    changed,
    copy_of,
    in_folder,
    kinds_of_example,
    shown_early,
    verified_again,
    written_again,
)
from tests.integration.cli.test_forge import succeeds
from tests.integration.kinds.test_forgeries import edit, relinked

ARMS = ("teacher", "distilled", "alone")


@pytest.fixture(scope="module")
def made(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run with both students: (home, state, folder of the result)."""
    folder = tmp_path_factory.mktemp("student")
    home = Home(folder / "home")
    student_runs.submit(home, toys.base)
    return student_runs.result(home, folder / "out")


def test_the_student_has_the_sizes_and_the_tokenizer(made, toys: Toys) -> None:
    """Half as wide and half as deep as the toy: an ordinary folder that transformers loads."""
    _, state, out = made
    config = json.loads((out / "model" / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (8, 2)
    student = open_checkpoint(out / "model")
    assert student.parameters == state.started.parameters
    assert digest(student.tensors()) == state.completed.models["model"].digest
    names = ("tokenizer.json", "tokenizer_config.json")
    for name in names:
        assert (out / "model" / name).read_bytes() == (toys.base / name).read_bytes()
    told = json.loads((out / "student.json").read_text())
    assert told["models"] == {"model": digest(student.tensors())}


def test_it_can_be_asked_for_again_with_its_model(made, toys: Toys) -> None:
    """The API and the page take the models of the kind's main role."""
    _, state, _ = made
    kind = Student()
    assert kind.requests.again(state.submitted).models[kind.main_role] == [str(toys.base)]


def test_both_students_begin_alike_and_read_the_same_windows(made) -> None:
    """They differ in the objective alone; every default is written out."""
    _, state, _ = made
    students = Student().run(state).trainings
    own = {"objective", "params", "inputs"}
    assert len({json.dumps(s.model_dump(mode="json", exclude=own)) for s in students.values()}) == 1
    assert students["distilled"].objective == "distil@1"
    assert students["distilled"].inputs == {"teacher": state.started.model.recipe_id}
    assert students["distilled"].params == {"weight": 0.5, "temperature": 2.0}
    assert students["alone"].inputs == {}
    for recipe in Student().recipes(state).values():
        whole = complete(recipe) if isinstance(recipe, Train) else operations.complete(recipe)
        assert whole == recipe


def test_figures_follow_from_what_was_measured(made) -> None:
    """Means over domains; retention is the given model's figure over the student's."""
    _, state, _ = made
    seen = Student().run(state).seen
    assert set(seen) == set(ARMS) == set(state.completed.arms)
    bits = {
        arm: sum(math.fsum(event.items[d]) / math.log(2) / sum(event.sizes[d]) for d in event.items)
        / len(event.items)
        for arm, event in seen.items()
    }
    figures, best = state.completed.figures, state.completed.chosen
    assert figures["bits_per_byte"].value == pytest.approx(bits[best])
    assert figures["retention"].value == pytest.approx(bits["teacher"] / bits[best])
    assert figures["retention"].low < figures["retention"].value < figures["retention"].high
    assert figures["parameters"].value == 3928
    assert figures["ratio"].value == 12240 / 3928


def test_the_better_student_is_chosen_on_another_slice(made) -> None:
    _, state, _ = made
    tasks = Student().run(state).candidates
    assert {task.on for task in tasks.values()} == {"selection"}
    means = {arm: comparison.mean(state.answers[task.key]) for arm, task in tasks.items()}
    assert state.completed.chosen == min(means, key=lambda arm: means[arm])
    worst = max(means, key=lambda arm: means[arm])
    event = state.answers[tasks[worst].key]
    better = event.model_copy(update={"values": dict.fromkeys(event.values, 0.0)})
    other = changed(state, answers={**state.answers, tasks[worst].key: better})
    assert Student().run(other).result == worst


def test_a_student_is_found_by_name_and_tells_where_it_came_from(made) -> None:
    """Without a name, the result; the other student is there too."""
    home, state, _ = made
    best = state.completed.chosen
    worse = "alone" if best == "distilled" else "distilled"
    with closing(home.open_store()) as store:
        for name, wanted in (("s", best), (f"s:{best}", best), (f"s:{worse}", worse)):
            origin = model_origin.find(store, name)
            assert origin is not None
            assert origin.recipe_id == Student().recipes(state)[wanted].id
        rows, total = model_registry.listed(store)
    assert total == 1
    assert rows[0]["parameters"] == state.started.parameters
    assert [one.place for one in Student().models.ancestry(state, "")] == ["model", "fresh", "given"]
    with pytest.raises(NotFoundError, match=r"no model 'poetry'\. It has model, fresh, distilled"):
        Student().models.origin(state, (), "poetry")


def test_its_panels_and_its_terminal_show_both_students(made) -> None:
    home, state, out = made
    shown = overview(state)
    assert [p.name for p in shown.panels] == [
        "arms",
        "quality",
        "loss",
        "speed",
        "norm",
        "rate",
        "models",
    ]
    assert shown.head.result is not None
    assert shown.head.result.value == state.completed.figures["bits_per_byte"].value
    view = kind_views.of("student")
    lines = [line for row in student_runs.rows(home) if (line := view.unit(state, row))]
    assert len([line for line in lines if "tokens/s" in line]) >= 2
    assert any(line.startswith("measured teacher, test: ") for line in lines)
    told = succeeds(home.folder, "show", "s", "--all")
    assert "Student beside the given model" in told.stdout
    assert "3.1 times fewer than 12,240" in announced(state, out)
    assert "times fewer" in "\n".join(Student().view.summary(state, ()))
    assert shown_early(state).panels == ()


def test_a_model_is_written_again_where_its_folder_and_cache_are_gone(made, tmp_path) -> None:
    home, state, _ = made
    place = written_again(home, state, tmp_path)
    assert digest(open_checkpoint(place).tensors()) == state.completed.models["model"].digest
    assert (place / "tokenizer.json").exists()


@pytest.mark.slow
def test_everything_is_made_again_by_verify(made) -> None:
    home, state, out = made
    found, said = verified_again(home, state.run)
    assert found == []
    assert len([line for line in said if "as recorded" in line]) == 3
    assert in_folder(home, state, out) == []
    assert len(in_folder(home, state, out, models={"model": "0" * 64})) == 2
    assert in_folder(home, state, out / "model") == []


@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("completed", figures={}), "the figures are not those"),
        (edit("completed", chosen="fresh"), "the chosen are not those"),
        (edit("observed", 0, values={"rows": 0.1, "sums": 0.1}), "do not follow from its items"),
    ],
)
def test_forged_figures_are_found(made, forgery, what: str) -> None:
    """Without a model: the end no longer follows from the events."""
    rows = student_runs.rows(made[0])
    found = [str(one.message) for one in audit.audit(relinked(forgery(rows)))]
    assert any(what in one for one in found), found


def test_a_forecast_tries_the_start_and_some_steps(made, tmp_path: Path) -> None:
    """The stand-in has the student's sizes, so that a later phase can be tried."""
    home, state, _ = made
    copied = copy_of(home, tmp_path)
    told = Student().forecast(state.submitted, Artifacts.of(copied), tmp_path / "models")
    assert open_checkpoint(told.models["model"]).parameters == state.started.parameters
    assert_amounts(told)
    assert "by a part of some" in told.seconds.how


def test_what_cannot_run_is_refused_before_any_work(toys: Toys, tmp_path: Path) -> None:
    kind, model = Student(), {"model": [str(toys.base)]}

    def refused(error: type[Exception], match: str, models: Any = None, **settings: Any) -> None:
        with pytest.raises(error, match=match):
            kind.check(kind.plan(RunRequest("student", settings, models or model), Lookup()))

    refused(ConfigError, "a student run is of one model: --model model=MODEL", {"model": []})
    refused(ConfigError, "no models 'base'", {**model, "base": [str(toys.base)]})
    refused(ConfigError, "a student of 12,240 parameters is not smaller", width=1, depth=1)
    refused(ConfigError, "set hidden to a multiple of 4", hidden=7, heads=2)
    refused(ConfigError, "distillation", distillation=0)
    refused(DataError, "no text of it: it has code, math", domains=["poetry"])
    refused(ConfigError, "context is 999999, the model takes", context=999_999)


def test_the_example_is_a_pipeline_that_can_start() -> None:
    assert kinds_of_example("student") == ["cognate", "student", "compression"]
