"""Baking runs in miniature: cycles, what is baked, compared, shown, verified, refused."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_forge.cli import kind_views
from agent_forge.evaluation.sandbox.sandbox import Sandbox
from agent_forge.phases.tool_baking import figures, recipes
from agent_forge.phases.tool_baking.recipes import BakingState, Iteration
from agent_forge.phases.tool_baking.script import Baking
from agent_forge.phases.tool_baking.work import Context
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.state import fold_into
from agent_forge.runs.kinds.view import overview
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.run import StudyRun
from agent_forge.tools.calls import CHAT, FORMS, TAGS, Call
from agent_forge.tools.tasks import FAMILIES, items
from agent_forge.tools.tasks.episodes import Speech
from agent_forge.tools.toolbox import Toolbox, World, usable
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training.windows import BAKED, OTHERS, stream_digest, unpack
from agent_forge.worker.commands import submit
from testing.miniatures import baking_runs
from testing.models import toy_models
from testing.models.able_toy import tokenizer
from testing.models.toys import Toys
from testing.verification import announced, shown_early, verified_again
from tests.golden.test_golden import rows_of
from tests.integration.kinds.test_forgeries import edit, relinked

#: Recorded logs: `baking-1` of before each iteration drew numbers of its own.
GOLDEN = Path(__file__).parents[2] / "golden"
#: A chat template that lists tools, and writes results as messages.
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def able(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that calls a tool under the prompt."""
    return baking_runs.able(tmp_path_factory.mktemp("able") / "model")


@pytest.fixture(scope="module")
def made(able: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run of both cycles: (home, state, folder of the result)."""
    folder = tmp_path_factory.mktemp("baking")
    home = Home(folder / "home")
    baking_runs.submit(home, able)
    return baking_runs.result(home, folder / "out")


def iterations(state: MakingState) -> list[Iteration]:
    """Return the iterations of a run."""
    return Baking().run(state).known["iterations"]


def training(run: StudyRun, iteration: Iteration) -> Train:
    """Return the training of an iteration."""
    return run.trainings[recipes.name(iteration.number, whole=True)]


# ---- tools and speech --------------------------------------------------------------------------


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_calls_of_a_solution_solve_a_task(family: str, tmp_path: Path) -> None:
    """In the sandbox where they run programs; tests of a repository fail before and pass after."""
    with Sandbox.open() as sandbox:
        for number, item in enumerate(items(family, 5, 0, "test", 10)):
            folder = tmp_path / str(number)
            folder.mkdir()
            box = Toolbox(item.world, folder, lambda: sandbox)
            assert bool(box.repository.failing(item.world.tests)) == (family == "repair")
            said = [box.answer(call) for some in item.calls for call in some]
            assert all(one.ran for one in said)
            assert (item.answer or "") in said[-1].output
            assert box.repository.failing(item.world.tests) == []


def test_programs_are_locked_in(tmp_path: Path) -> None:
    with Sandbox.open() as sandbox:
        box = Toolbox(World(files={"a.py": "def f():\n    return 1\n"}), tmp_path, lambda: sandbox)
        assert box.answer(Call("python", "x = 3; x * x")).output == "9"
        assert not box.answer(Call("python", "open('/etc/passwd').read()")).ran
        assert len(box.answer(Call("python", "'x' * 2000000")).output) < 500
        assert not box.answer(Call("edit", "a.py 9 return 2")).ran
        assert box.answer(Call("edit", "a.py 2 return 2")).ran
        assert box.repository.failing(["assert f() == 2"]) == []


def test_a_session_is_written_by_the_chat_template() -> None:
    """The template lists the tools and writes results; without one, the form is refused."""
    own: Any = tokenizer()
    with pytest.raises(ConfigError, match="no chat template"):
        Speech(own, CHAT, False, usable(["calc"]))
    own.chat_template = TEMPLATE
    speech = Speech(own, CHAT, True, usable(["calc"]))
    begun = speech.text(speech.begin("be kind", "2 + 2?", True))
    assert begun.startswith('[{"type": "function"')
    assert begun.endswith("<system>be kind</system><user>2 + 2?</user><assistant>")
    assert speech.text(speech.after("4")) == "</assistant><tool>4</tool><assistant>"
    own.chat_template = TEMPLATE[TEMPLATE.index("{% for") :]
    with pytest.raises(ConfigError, match="takes tools"):
        Speech(own, CHAT, True, usable(["calc"]))


def test_plain_sessions_hold_prompt_and_question() -> None:
    speech = Speech(tokenizer(), TAGS, False, usable(["calc"]))
    assert speech.text(speech.begin("Tools!\n", "2 + 2?")) == "Tools!\n2 + 2?\n"
    assert speech.text(speech.begin("", "2 + 2?")) == "2 + 2?\n"
    assert "calc: EXPRESSION" in speech.prompt()
    assert {*FORMS} == {"chat", "tags", "brackets", "words"}


# ---- a whole run -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_completes_with_an_honest_history(made) -> None:
    home, state, _ = made
    assert state.status == "completed"
    assert audit.audit(baking_runs.rows(home)) == []
    assert [one.cycle for one in iterations(state)] == ["personas", "tools"]
    assert Baking().run(state).known["switches"][-1].next is None


@pytest.mark.slow
def test_turns_of_solved_tasks_are_baked_and_results_are_context(made) -> None:
    """A second turn stands after its call and the result, in both beginnings."""
    home, state, _ = made
    context = Context.opened(state, Artifacts.of(home))
    last = iterations(state)[-1]
    assert last.written is not None
    found = unpack(context._streams_of(training(Baking().run(state), last))[BAKED])
    assert len(found) == last.written.streams[BAKED].trajectories
    calls = [one for one in found if context.speech.text(one.reply).startswith("<call>")]
    answers = [one for one in found if "<result>" in context.speech.text(one.plain)]
    assert len(calls) == len(answers) == len(found) / 2
    for one in found:
        told = context.speech.text(one.prompted)
        assert told == baking_runs.PROMPT + context.speech.text(one.plain)
        assert "<result>" not in context.speech.text(one.reply)


@pytest.mark.slow
def test_iterations_with_the_same_turns_read_their_own_other_turns(made) -> None:
    """A model that changes little writes the same turns again, but others under other prompts."""
    home, state, _ = made
    context = Context.opened(state, Artifacts.of(home))
    known = iterations(state)
    last = known[-1]
    assert last.written is not None
    wrong = last.written.streams[OTHERS].model_copy(update={"digest": "0" * 64})
    streams = {**last.written.streams, OTHERS: wrong}
    before = replace(last, written=last.written.model_copy(update={"streams": streams}))
    end = training(Baking().run(state), last)
    known.insert(0, before)
    found = context._streams_of(end)
    known.remove(before)
    assert stream_digest(found[OTHERS]) == end.data_digests[OTHERS]


def test_each_iteration_draws_numbers_of_its_own(tmp_path: Path) -> None:
    """Those of earlier runs drew the same, and are sampled again as they were."""

    def keys(log: str) -> list[tuple[str | int, ...]]:
        state = fold_into(BakingState(), rows_of(GOLDEN / f"{log}.jsonl"))
        context, held = Context(state, Artifacts.of(Home(tmp_path))), recipes.held(state.started)
        assert context.draws(held.cycle, held.recipe_id) == (0, "baking")
        return [context.draws(one.cycle, one.start.id) for one in iterations(state)]

    assert keys("baking-1") == [(0, "baking"), (0, "baking")]
    assert keys("baking-2") == [(0, "baking", "iteration", 1), (0, "baking", "iteration", 2)]


@pytest.mark.slow
def test_figures_follow_from_what_was_measured(made) -> None:
    _, state, _ = made
    told, solved = state.completed.figures, figures.solved(Baking().run(state))
    own = figures.success(solved[state.completed.chosen])
    assert told["success"].value == own
    assert told["gain"].value == pytest.approx(own - figures.success(solved[recipes.START]))
    assert told["prompted"].value == figures.success(solved["prompted"]) > 0.5
    assert told["ratio"].value < 1


@pytest.mark.slow
def test_the_result_is_an_ordinary_folder_and_is_found_by_name(made) -> None:
    home, state, out = made
    result = state.completed.models["model"]
    assert digest(open_checkpoint(out / "model").tensors()) == result.digest
    told = json.loads((out / "baking.json").read_text())
    assert len(told["iterations"]) == 2
    assert len([*(out / "personas").iterdir()]) == len(told["personas"])
    with closing(home.open_store()) as store:
        origin = model_origin.find(store, "b:iteration-2")
    assert origin is not None
    assert origin.recipe_id == Baking().recipes(state)["iteration-2"].id
    with pytest.raises(NotFoundError, match="no model 'poetry'"):
        Baking().models.origin(state, (), "poetry")


@pytest.mark.slow
def test_its_panels_and_its_terminal_show_the_cycles(made) -> None:
    home, state, out = made
    names = [panel.name for panel in overview(state).panels]
    assert names[:6] == ["arms", "success", "scores", "cycles", "divergence", "personas"]
    view = kind_views.of("baking")
    lines = [line for row in baking_runs.rows(home) if (line := view.unit(state, row))]
    assert any("personas ended after iteration 1" in line for line in lines)
    assert "share of the test tasks that are solved" in announced(state, out)
    assert Baking().view.summary(state, ())[0].startswith("- Without a prompt the result")
    assert shown_early(state).panels == ()


@pytest.mark.slow
def test_everything_is_made_again_by_verify(made) -> None:
    """From nothing: each training reads the turns of its own iteration, which are sampled again."""
    home, state, out = made
    kind = Baking()
    found, said = verified_again(home, state.run)
    assert found == []
    assert len([line for line in said if "as recorded" in line and "digest" in line]) == len(
        Baking().recipes(state)
    )
    document = kind.verification.document(out)
    assert document is not None
    assert list(kind.verification.folder(home, out, document, state, True)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("completed", figures={}), "the figures are not those"),
        (edit("iteration_ended", 0, after=1.0), "does not follow"),
        (edit("cycle_switched", 0, slope=0.0), "does not say what follows"),
        (edit("proposed", 0, personas=["", "x"]), "a persona has no text"),
    ],
)
def test_forgeries_are_found(made, forgery, what: str) -> None:
    found = [str(one.message) for one in audit.audit(relinked(forgery(baking_runs.rows(made[0]))))]
    assert any(what in one for one in found), found


@pytest.mark.slow
def test_a_forecast_tries_the_start_and_the_tasks(made, tmp_path: Path) -> None:
    home, state, _ = made
    told = Baking().forecast(state.submitted, Artifacts.of(home), tmp_path / "models")
    for amount in (told.seconds, told.disk, told.memory):
        assert amount.value


@pytest.mark.slow
def test_a_model_that_can_do_nothing_goes_through_unchanged(tmp_path: Path) -> None:
    """No turn leads to a solved task and no persona helps: both cycles end, the input is the result."""
    home = Home(tmp_path / "home")
    model, _ = toy_models.family(tmp_path / "m", 0, max_position_embeddings=160)
    settings = {"cycles": ["tools", "personas"], "iterations": 4, "proposal": "name", "calls": 1}
    baking_runs.submit(home, model, **settings)
    state = baking_runs.finish(home)
    known = Baking().run(state).known
    assert [one.ended.outcome for one in known["iterations"]] == ["nothing", "nothing"]
    assert [switch.next for switch in known["switches"]] == ["personas", None]
    assert state.completed.chosen == recipes.START
    assert state.completed.figures["gain"].value == 0.0
    assert audit.audit(baking_runs.rows(home)) == []


# ---- refusals ----------------------------------------------------------------------------------


def test_what_cannot_run_is_refused_before_any_work(toys: Toys) -> None:
    model = {"model": [str(toys.base)]}
    quick = {**baking_runs.QUICK, "tool_prompt": "T\n", "reply_tokens": 8}

    def refused(error: type[Exception], match: str, models: Any = None, **settings: Any) -> None:
        asked = RunRequest("baking", {**quick, **settings}, models or model)
        with pytest.raises(error, match=match):
            submit.check(submit.plan(asked))

    refused(ConfigError, "is of one model: --model model=MODEL", {"model": []})
    refused(ConfigError, "no tool tasks 'poetry': there are calculation", families=["poetry"])
    refused(ConfigError, "the prompt of the tools and the longest task", tool_prompt="x" * 500)
    refused(ConfigError, "no chat template that takes tools", form="chat")
    refused(ConfigError, "give each name once", families=["table", "table"])
    refused(ConfigError, "the tool prompt has no text", tool_prompt=" ")
    refused(ConfigError, "context is 999999, the model takes", context=999_999)
    refused(ConfigError, "a rank of 4096 is more than", train="lora", lora_rank=4096)


def test_a_tokenizer_that_cannot_write_calls_is_named() -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    from agent_forge.tools.tasks import episodes

    core = Tokenizer(WordLevel({"value": 0, "of": 1, "<end>": 2, "?": 3}, unk_token="?"))
    core.pre_tokenizer = WhitespaceSplit()
    own = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", unk_token="?")
    some = items("table", 1, 0, "test", 4)
    with pytest.raises(ConfigError, match=r"cannot write the calls of tools .*words: of"):
        episodes.chosen(own, "auto", None, usable(["table"]), some)
    found = episodes.chosen(tokenizer(), "auto", None, usable(["table"]), some)
    assert found.form.name == "tags"
