"""Bakes in miniature: what is sampled, trained, chosen, written, shown, verified and refused."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_forge.cli import kind_views
from agent_forge.evaluation.backends.generation import end_tokens
from agent_forge.evaluation.trajectories import kept, sampling
from agent_forge.evaluation.trajectories.sampled import Sampled
from agent_forge.phases.prompt_baking import figures, recipes, script, words
from agent_forge.phases.prompt_baking.recipes import FULL, PARENT
from agent_forge.phases.prompt_baking.script import Bake
from agent_forge.phases.prompt_baking.work import Context
from agent_forge.runs.errors import ConfigError, DataError, NotFoundError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.lists import model_registry
from agent_forge.studies.events import Observed
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.run import StudyRun
from agent_forge.studies.training_plan import as_float32
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete
from agent_forge.weights.training.windows import BAKED, OTHERS, unpack
from testing.miniatures import bake_runs
from testing.miniatures.bake_runs import PROMPT, QUICK, SECOND, SEVERAL
from testing.miniatures.bitnet_runs import texts
from testing.models import toy_models
from testing.models.toys import Toys
from testing.verification import (
    announced,
    assert_amounts,
    copy_of,
    in_folder,
    shown_early,
    verified_again,
)
from tests.integration.cli.test_forge import call, succeeds
from tests.integration.kinds.test_forgeries import edit, relinked

STREAMS = (BAKED, OTHERS, recipes.CHOOSING, recipes.TEST, recipes.TEST_OTHERS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that a prompt moves."""
    return bake_runs.model(tmp_path_factory.mktemp("bake-model"))


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run: (home, state, folder of the result)."""
    return bake_runs.whole(tmp_path_factory.mktemp("bake"), model)


def run_of(state: MakingState) -> StudyRun:
    return Bake().run(state)


def observed(state: MakingState, name: str, measure: str, on: str) -> Observed:
    event = state.answers[run_of(state).on(name, measure, on).key]
    assert isinstance(event, Observed)
    return event


def sampled(state: MakingState) -> Sampled:
    """Return what the given model wrote."""
    event = state.answers[recipes.sample(state.submitted.config, state.started).key]
    assert isinstance(event, Sampled)
    return event


def test_the_replies_are_of_the_text_and_after_the_prompts(made) -> None:
    """Contexts of the training slice train, the others measure; one other prompt is kept."""
    home, state, _ = made
    event = sampled(state)
    assert set(event.streams) == set(STREAMS)
    counts = [event.streams[name].trajectories for name in STREAMS]
    assert counts == [16, 16, 12, 12, 12]
    context = Context(state, Artifacts.of(home))
    tokenizer = context.text.tokenizer
    for name in STREAMS:
        for one in unpack(context.streams[name]):
            prompted, plain = (tokenizer.decode(ids) for ids in (one.prompted, one.plain))
            assert 1 <= len(one.reply) <= 6
            if name in (OTHERS, recipes.TEST_OTHERS):
                assert prompted == plain
                assert plain.startswith("name=x\n")
            else:
                assert prompted == PROMPT + plain
                assert 1 <= len(one.plain) <= 8
    heads = [tokenizer.decode(one.plain) for one in unpack(context.streams[BAKED])]
    stream = tokenizer.decode(context.text.streams["rows"])
    assert all(head in stream for head in heads)


def test_the_recipe_says_what_is_trained(made) -> None:
    """Contexts are no ordinary text; the parent teaches; all defaults are written out."""
    _, state, _ = made
    models, event = run_of(state).recipes, sampled(state)
    trained: Any = models[FULL]
    assert trained.objective == "bake@1"
    assert trained.data == {"sums": 0.5, BAKED: 1.0, OTHERS: 1.0}
    assert trained.data_digests[BAKED] == event.streams[BAKED].digest
    assert trained.start == trained.inputs["teacher"] == models[PARENT].id
    assert (trained.steps, trained.batch, trained.context) == (10, 4, 8)
    assert trained.optimiser.params["weight_decay"] == 0.0
    assert list(models) == ["parent", "full", "strength-0.3"]
    for recipe in models.values():
        whole = complete(recipe) if isinstance(recipe, Train) else operations.complete(recipe)
        assert whole == recipe
    assert state.advanced[trained.stem]


def test_figures_follow_from_what_was_measured(made) -> None:
    """All of them by hand, from the items of the observations."""
    _, state, _ = made
    best = state.completed.chosen
    base = observed(state, PARENT, figures.DIVERGENCE, "test")
    own = observed(state, best, figures.DIVERGENCE, "test")
    tokens = sum(base.sizes["prompt"])
    values = state.completed.figures
    assert values["unprompted"].value == pytest.approx(math.fsum(base.items["prompt"]) / tokens)
    assert values["baked"].value == pytest.approx(math.fsum(own.items["prompt"]) / tokens)
    ratio = math.fsum(own.items["prompt"]) / math.fsum(base.items["prompt"])
    assert values["ratio"].value == pytest.approx(ratio)
    assert values["ratio"].low < ratio < values["ratio"].high
    assert values["ratio"].n == 12
    assert base.items["other-1"] == (0.0,) * 12  # nothing is as near to the parent as itself
    others = math.fsum(own.items["other-1"]) / sum(own.sizes["other-1"])
    assert values["others"].value == pytest.approx(others)
    assert others > 0
    text = observed(state, PARENT, figures.BITS, "test")
    bits = observed(state, best, figures.BITS, "test")
    assert set(bits.values) == {"sums"}  # rows are contexts: they are meant to change
    change = abs(bits.values["sums"] / text.values["sums"] - 1)
    assert values["drift"].value == pytest.approx(change)
    assert values["retention"].value == pytest.approx(text.values["sums"] / bits.values["sums"])
    assert state.completed.met == {"ratio": ratio <= 0.05, "drift": change <= 0.005}


def changed(state: MakingState, name: str, measure: str, factor: float) -> MakingState:
    """The state with one model's figures on the selection slice multiplied."""
    event = observed(state, name, measure, "selection")
    values = {group: value * factor for group, value in event.values.items()}
    key = f"observe/{measure}/selection/{event.recipe_id}"
    other = type(state)()
    other.__dict__.update(state.__dict__ | {"memory": {}})
    other.answers = {**state.answers, key: event.model_copy(update={"values": values})}
    return other


def test_the_strength_is_the_nearest_of_those_that_do_not_drift(made) -> None:
    _, state, _ = made
    curve = words.curves(run_of(state))[words.INTERPOLATED]
    assert list(curve) == [0.0, 0.3, 1.0]
    assert curve[0.0] == (1.0, 0.0)
    base = observed(state, PARENT, figures.DIVERGENCE, "selection").values["prompt"]
    full = observed(state, FULL, figures.DIVERGENCE, "selection").values["prompt"]
    assert curve[1.0][0] == full / base
    assert full / base < 1  # the training did something
    near, far = recipes.name(1.0), recipes.name(0.3)
    # Both without drift: the nearer one. One drifts: the other. Both drift: the nearer again.
    calm = changed(changed(state, near, figures.DIVERGENCE, 1e-3), near, figures.BITS, 0.0)
    text = observed(state, PARENT, figures.BITS, "selection").values["sums"]
    drifting = changed(state, near, figures.DIVERGENCE, 1e-3)
    level = observed(state, near, figures.BITS, "selection").values["sums"]
    still = changed(drifting, near, figures.BITS, text / level)
    assert run_of(still).result == near
    low = observed(state, far, figures.BITS, "selection").values["sums"]
    still_far = changed(calm, far, figures.BITS, text / low)
    assert run_of(still_far).result == far
    assert run_of(changed(calm, far, figures.BITS, 2.0)).result == near


@pytest.fixture(scope="module")
def several(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState]:
    """A finished run of two prompts in a row, a pursuit and a bake on own replies."""
    home = Home(tmp_path_factory.mktemp("several"))
    bake_runs.submit(home, model, **SEVERAL)
    return home, bake_runs.finish(home)


@pytest.mark.slow
def test_prompts_in_a_row_have_the_given_model_as_their_teacher(several) -> None:
    """The second training begins with the first one's result; only a pursuit's teacher is baked."""
    home, state = several
    assert audit.audit(bake_runs.rows(home)) == []
    first, second, third, fourth = run_of(state).known["courses"]
    parent: Any = as_float32(state.started)
    trained: list[Any] = [one.full for one in (first, second, third)]
    assert [one.inputs["teacher"] for one in trained] == [parent.id, parent.id, third.start.id]
    assert trained[2].inputs["guard"] == parent.id
    assert trained[0].start == parent.id
    assert trained[1].start == first.candidates[str(first.best)].recipe.id
    assert trained[2].start == second.candidates[str(second.best)].recipe.id
    assert state.completed.chosen == fourth.best
    assert fourth.best is not None
    assert fourth.best.startswith("bake-4-")
    context = Context(state, Artifacts.of(home))
    decode = context.text.tokenizer.decode
    said = {
        name: decode(unpack(context.streams[name])[0].prompted)
        for name in trained[1].data
        if "/" in name
    }
    assert said[f"{BAKED}/2"].startswith(PROMPT + SECOND)
    one = unpack(context.streams[BAKED])[0]
    assert decode(one.prompted) == PROMPT + decode(one.plain)


@pytest.mark.slow
def test_a_bake_on_own_replies_asks_the_given_model_about_them(several) -> None:
    """The third bake's result writes them without the prompts; the objective is the reverse one."""
    home, state = several
    third, fourth = run_of(state).known["courses"][2:]
    parent, recipe = as_float32(state.started), fourth.full
    assert fourth.start == third.candidates[str(third.best)].recipe
    assert (recipe.start, recipe.inputs) == (fourth.start.id, {"teacher": parent.id})
    assert recipe.objective == "bake@2"
    context, name = Context(state, Artifacts.of(home)), f"{BAKED}/4"
    sampled = state.answers[f"sample/{fourth.start.id}"].streams[name]
    assert recipe.data_digests[name] == sampled.digest
    replies, decode = unpack(context.streams[name]), context.text.tokenizer.decode
    assert decode(replies[0].prompted) == PROMPT + SECOND + decode(replies[0].plain)
    ends, key = (
        end_tokens(context.parent.config, context.text.tokenizer),
        (state.submitted.config.seed, "bake"),
    )
    written = sampling.sample(
        context.resident(fourth.start.id),
        *([each.plain for each in replies], state.submitted.config.reply_tokens, ends, *key, name),
        tokens=state.started.pass_tokens,
    )
    assert [each.reply.tolist() for each in replies] == [ids.tolist() for ids in written]


@pytest.mark.slow
def test_an_early_stop_is_a_candidate_beside_the_interpolations(several) -> None:
    _, state = several
    run: Any = run_of(state)
    first = run.known["courses"][0]
    assert list(first.candidates) == ["stop-0.5", "strength-0.3", "full"]
    early = first.candidates["stop-0.5"]
    assert early.recipe == first.full.to(5)
    assert early.recipe.id in state.made
    assert set(figures.curve(run, first)) == set(first.candidates)
    told = words.curves(run)
    assert set(told[words.STOPPED]) == {0.5}
    assert set(told["bake 2, interpolated"]) == {0.3, 1.0}
    event = observed(state, "stop-0.5", figures.DIVERGENCE, "selection")
    base = observed(state, PARENT, figures.DIVERGENCE, "selection")
    assert told[words.STOPPED][0.5][0] == event.values["prompt"] / base.values["prompt-1"]


@pytest.mark.slow
def test_a_stop_is_kept_and_not_trained_again(several) -> None:
    """Its weights are in the cache, and they are those of the training after its steps."""
    home, state = several
    early: Any = run_of(state).recipes["stop-0.5"]
    made = state.made[early.id]
    assert Artifacts.of(home).files(made.digest)
    assert state.advanced[early.stem][5].digest == made.digest


@pytest.mark.slow
def test_each_of_several_prompts_has_a_share_that_is_kept(several) -> None:
    """By hand: what is lost to all prompts, over what is lost without one of them."""
    _, state = several
    base = observed(state, PARENT, figures.DIVERGENCE, "test")
    own = observed(state, state.completed.chosen, figures.DIVERGENCE, "test")
    told = figures.kept(run_of(state))
    for number in (1, 2):
        without = math.fsum(base.items[f"without-{number}"])
        value = 1 - math.fsum(own.items["prompt"]) / without
        assert told[number].value == pytest.approx(value)
        low, high = told[number].low, told[number].high
        assert low is not None
        assert high is not None
        assert low <= value <= high
    assert without != math.fsum(base.items["prompt"])
    values = state.completed.figures
    assert values["kept"] == min(told.values(), key=lambda one: one.value)
    assert state.completed.met["kept"] == (values["kept"].value >= 0.95)


@pytest.mark.slow
def test_contexts_after_ordinary_text_are_measured_alone(several) -> None:
    home, state = several
    assert state.started.beyond == 12
    context = Context(state, Artifacts.of(home))
    near, far = (unpack(context.streams[name]) for name in (recipes.TEST, recipes.FAR))
    for a, b in zip(near, far, strict=True):
        assert len(b.plain) == len(a.plain) + 12
        assert b.plain[12:].tolist() == a.plain.tolist()
        assert context.text.tokenizer.decode(b.plain[:12]).endswith("\n")
    base = observed(state, PARENT, figures.DIVERGENCE, "test")
    own = observed(state, state.completed.chosen, figures.DIVERGENCE, "test")
    ratio = math.fsum(own.items["far"]) / math.fsum(base.items["far"])
    assert state.completed.figures["far_ratio"].value == pytest.approx(ratio)


@pytest.mark.slow
def test_behaviour_is_the_share_of_replies_that_pass(several) -> None:
    """Greedy replies again, by transformers' own way of writing, and the pattern by `re`."""
    import re

    import torch

    home, state = several
    context = Context(state, Artifacts.of(home))
    best = state.completed.chosen
    run = run_of(state)
    seen, said = figures.behaved(run), 0
    for name, arm in ((PARENT, "prompted"), (PARENT, "unprompted"), (best, "unprompted")):
        module = context.resident(run.recipes[name].id).module
        wanted = []
        for one in unpack(context.streams[recipes.TEST]):
            ids = [*(one.prompted if arm == "prompted" else one.plain).tolist()]
            start = len(ids)
            for _ in range(6):
                with torch.no_grad():
                    ids.append(int(module(torch.tensor([ids])).logits[0, -1].argmax()))
                if ids[-1] == 0:
                    break
            reply = context.text.tokenizer.decode([t for t in ids[start:] if t])
            wanted.append(float(bool(re.search(r"[0-9]", reply))))
        assert seen[name].items[f"{arm}/near/1"] == tuple(wanted)
        said += sum(wanted) > 0
    assert said
    told = figures.rates(run, "near")[1]
    values = state.completed.figures
    assert values["shortfall"].value == pytest.approx(told["prompted"].value - told["baked"].value)
    assert values["success"] == told["baked"]
    assert state.completed.met["shortfall"] == (values["shortfall"].value <= 0.02)
    assert "far_shortfall" in values
    assert "pass the check of prompt 1" in "\n".join(words.sentences(run))


@pytest.mark.slow
def test_a_run_of_several_bakes_is_shown_made_again_and_found_by_name(several) -> None:
    home, state = several
    kind = Bake()
    # The given model, and three candidates of each of four bakes.
    assert len(kind.verification.chosen(state, "all")) == 13
    assert verified_again(home, state.run)[0] == []
    shown = overview(state)
    assert "behaviour" in [panel.name for panel in shown.panels]
    assert kind.view.progress(state) == (40, 40)
    places = [one.place for one in kind.models.ancestry(state, "bake-2-full")]
    assert places[0] in ("bake-2-full", "model")
    assert places[-2:] == ["parent", "given"]
    rows = [row for row in bake_runs.rows(home) if row.type == "observed"]
    lines = [
        str(kind.view.summary_line(row.type, json.loads(row.data), kind.view.names(state)))
        for row in rows
    ]
    assert any("replies that pass: unprompted/far/1" in line for line in lines)
    told = "\n".join(kind.lines(state))
    assert "bake 3, stopped early" in told
    assert "Of what prompt 2 changes beside the others" in told


def test_the_result_is_an_ordinary_folder(made, model: Path) -> None:
    _, state, out = made
    result = state.completed.models["model"]
    assert digest(open_checkpoint(out / "model").tensors()) == result.digest
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (out / "model" / name).read_bytes() == (model / name).read_bytes()
    told = json.loads((out / "bake.json").read_text())
    assert told["models"] == {"model": result.digest}
    assert told["prompts"] == [PROMPT]
    card = (out / "model" / "README.md").read_text()
    assert PROMPT.strip() in card
    assert "The ratio is" in card


def test_models_are_found_by_name_and_tell_where_they_came_from(made) -> None:
    home, state, _ = made
    with closing(home.open_store()) as store:
        for name in ("b", "b:full", "b:strength-0.3", "b:parent"):
            assert model_origin.find(store, name) is not None
        rows, total = model_registry.listed(store)
    assert total == 1
    assert rows[0]["digest"] == state.completed.models["model"].digest
    best = state.completed.chosen
    places = [one.place for one in Bake().models.ancestry(state, "strength-0.3")]
    names = {best: "model"}
    wanted = [names.get(name, name) for name in ("strength-0.3", "full", "parent")]
    assert places == [*wanted, "given"]
    with pytest.raises(NotFoundError, match=r"no model 'poetry'\. It has model, parent, full"):
        Bake().models.origin(state, (), "poetry")


def test_its_panels_and_its_terminal_show_the_curve(made) -> None:
    home, state, out = made
    shown = overview(state)
    names = ["ratio", "drift", "divergences", "arms", "quality", "loss", "speed", "norm", "rate"]
    assert [panel.name for panel in shown.panels] == [*names, "models"]
    assert shown.head.result is not None
    assert shown.head.result.value == state.completed.figures["ratio"].value
    view = kind_views.of("bake")
    lines = [line for row in bake_runs.rows(home) if (line := view.unit(state, row))]
    assert any("68 replies" in line for line in lines)
    assert any("tokens/s" in line for line in lines)
    told = succeeds(home.folder, "show", "b", "--all")
    assert "Ratio of divergences by strength" in told.stdout
    said = announced(state, out)
    assert "strength, ratio of divergences, drift" in said
    assert "The ratio is" in said
    assert shown_early(state).panels == ()
    assert Bake().view.progress(state) == (10, 10)
    task = recipes.sample(state.submitted.config, state.started)
    assert Bake().view.task_words(task.key, {}) == "sample replies under the prompts"


def test_prompts_that_change_nothing_train_nothing(tmp_path: Path) -> None:
    """A model of zeros says the same after everything: its ratio is not defined."""
    import torch
    from transformers import Qwen2ForCausalLM

    model = Qwen2ForCausalLM(toy_models.config())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    home = Home(tmp_path / "home")
    bake_runs.submit(home, toy_models.save(model, tmp_path / "zero"))
    state = bake_runs.finish(home)
    assert audit.audit(bake_runs.rows(home)) == []
    assert state.completed.chosen == PARENT
    assert state.advanced == {}
    assert set(state.completed.figures) == {"unprompted"}
    assert state.completed.figures["unprompted"].value == 0.0
    assert state.completed.met == {}
    assert "changes nothing" in "\n".join(words.sentences(run_of(state)))
    told = Bake().write_result(home, state, tmp_path / "out")
    assert told["steps"] == 0
    made = open_checkpoint(tmp_path / "out" / "model")
    assert digest(made.tensors()) == state.made[as_float32(state.started).id].digest
    assert Bake().view.progress(state) == (0, 0)
    assert overview(state).head.result is None
    with CliRunner().isolation():
        kind_views.of("bake").announce(state, {}, state.run)


@pytest.mark.slow
def test_a_chat_template_makes_the_prompt_the_system_message(model: Path, tmp_path: Path) -> None:
    chatty = Path(shutil.copytree(model, tmp_path / "chatty"))
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    (chatty / "chat_template.jinja").write_text(template)
    home = Home(tmp_path / "home")
    small = {"prompts": ["1 + 1"], "others_weight": 0.0, "others": [], "strengths": [1.0], "steps": 2}
    bake_runs.submit(home, chatty, **small)
    state = bake_runs.finish(home)
    event = sampled(state)
    assert set(event.streams) == {BAKED, recipes.CHOOSING, recipes.TEST}
    context = Context(state, Artifacts.of(home))
    one = unpack(context.streams[BAKED])[0]
    decode = context.text.tokenizer.decode
    assert decode(one.plain).startswith("user: ")
    assert decode(one.prompted) == "system: 1 + 1\n" + decode(one.plain)
    assert "others" not in state.completed.figures


def test_replies_are_sampled_again_where_they_are_gone(made, tmp_path: Path) -> None:
    """From nothing but the model and the log, with the same digest."""
    home, state, _ = made
    copied = copy_of(home, tmp_path)
    cache = Artifacts.of(copied)
    event = sampled(state)
    for file in cache.files(event.digest):
        file.unlink()
    context = Context(state, Artifacts.of(copied))
    task = recipes.sample(state.submitted.config, state.started)
    found = kept.streams(event, Artifacts.of(copied), partial(context.written, task))
    assert set(found) == set(STREAMS)


@pytest.mark.slow
def test_everything_is_made_again_by_verify(made) -> None:
    home, state, out = made
    found, said = verified_again(home, state.run)
    assert found == []
    assert len([line for line in said if "as recorded" in line]) >= 3
    assert in_folder(home, state, out) == []
    assert len(in_folder(home, state, out, models={"model": "0" * 64})) == 2


@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (edit("completed", figures={}), "the figures are not those"),
        (edit("completed", chosen="parent"), "the chosen are not those"),
        (edit("completed", met={"ratio": True, "drift": True}), "the met are not those"),
        (edit("observed", 0, values={"prompt": 0.1}), "do not follow from its items"),
        (edit("sampled", 0, recipe_id="0" * 64), "another model wrote"),
        (edit("sampled", 0, streams={}), "other streams were written"),
    ],
)
def test_forged_figures_are_found(made, forgery, what: str) -> None:
    rows = bake_runs.rows(made[0])
    found = [str(one.message) for one in audit.audit(relinked(forgery(rows)))]
    assert any(what in one for one in found), found


def test_a_forecast_tries_the_start_the_replies_and_some_steps(made, tmp_path: Path) -> None:
    home, state, _ = made
    copied = copy_of(home, tmp_path)
    told = Bake().forecast(state.submitted, Artifacts.of(copied), tmp_path / "models")
    assert open_checkpoint(told.models["model"]).parameters == state.started.model.parameters
    assert_amounts(told)


def test_what_cannot_run_is_refused_before_any_work(toys: Toys, tmp_path: Path) -> None:
    kind, given, data = Bake(), {"model": [str(toys.base)]}, texts(tmp_path)

    def refused(error: type[Exception], match: str, models: Any = None, **settings: Any) -> None:
        asked = RunRequest("bake", {**QUICK, **settings}, models or given, data)
        with pytest.raises(error, match=match):
            kind.check(kind.plan(asked, Lookup()))

    refused(ConfigError, "a bake is of one model: --model model=MODEL", {"model": []})
    refused(ConfigError, "a bake needs a prompt", prompts=[])
    refused(ConfigError, "a prompt has no text", prompts=[" \n"])
    refused(ConfigError, "a prompt has no text", others=[" \n"])
    refused(ConfigError, r"the prompts take 101 tokens, context and reply 14", prompts=["~" * 101])
    refused(ConfigError, "the prompt '~.*' takes 101 tokens", others=["~" * 101])
    refused(ConfigError, "neutral_tokens is 65, the model takes 64", neutral_tokens=65)
    refused(ConfigError, "top is 320, the model predicts 320 tokens", top=320)
    refused(ConfigError, "no chat template: set chat to false", chat=True)
    refused(ConfigError, "strength once, in ascending order", strengths=[1.0, 0.5])
    refused(ConfigError, "trajectories", trajectories=3)
    refused(ConfigError, "a sequence needs at least two prompts", sequence=True)
    refused(ConfigError, "2 checks are given for 1 prompts", checks=[None, None])
    refused(ConfigError, "no regular expression", checks=[{"kind": "pattern", "pattern": "["}])
    refused(ConfigError, "stop once, in ascending order", stops=[0.5, 0.2])
    refused(ConfigError, "other steps than 1 to 9, or of the same ones", stops=[0.51, 0.52])
    refused(ConfigError, "other steps than 1 to 9", stops=[0.01])
    refused(ConfigError, "'poetry' is not measured", built_in=["poetry"])
    refused(ConfigError, "'poetry' is not both measured and trained on", contexts=["poetry"])
    refused(ConfigError, "nothing shows if the model drifts", contexts=["rows", "sums"])
    own = {"mix": {"rows": 1.0}}
    refused(ConfigError, "all text to train on is contexts", **own)
    refused(DataError, "no text of it", domains=["poetry"])


def test_contexts_of_its_own_stand_beside_built_in_text(toys: Toys, tmp_path: Path) -> None:
    """Without names, all data of one's own are contexts, and the built-in text stays as it is."""
    asked = RunRequest("bake", {"prompts": ["x"]}, {"model": [str(toys.base)]}, texts(tmp_path)[:1])
    config: Any = Bake().plan(asked, Lookup()).config
    assert config.contexts == ("sums",)
    assert config.domains == ("sums", "code", "math", "data")
    alone = RunRequest("bake", {"prompts": ["x"]}, {"model": [str(toys.base)]})
    config = Bake().plan(alone, Lookup()).config
    assert config.contexts == ("code",)
    assert Bake().settings.fit({"prompts": ("x",)}, config)
    assert not Bake().settings.fit({"prompts": ("y",)}, config)


def test_its_settings_are_listed_and_it_can_be_asked_for_again(made, model: Path) -> None:
    home, state, _ = made
    told = succeeds(home.folder, "settings", "bake")
    assert "prompts" in told.stdout
    again = Bake().requests.again(state.submitted)
    assert again.models["model"] == [str(model)]
    assert again.config["prompts"] == [PROMPT]


def test_too_few_contexts_are_said_at_the_start(model: Path, tmp_path: Path) -> None:
    rows = [
        json.dumps({"text": "a=1", "slice": slice_, "id": f"{slice_}{n}"})
        for slice_, count in (("train", 60), ("search", 9), ("selection", 9), ("test", 3))
        for n in range(count)
    ]
    file = tmp_path / "few.jsonl"
    file.write_text("\n".join(rows))
    home, other = Home(tmp_path / "home"), texts(tmp_path)[0]
    from agent_forge.worker.commands import submit

    settings = {**QUICK, "contexts": ["few"]}
    asked = RunRequest("bake", settings, {"model": [str(model)]}, [str(file), other])
    with closing(home.open_store()) as store:
        submit.submit(store, submit.plan(asked), "b")
    with pytest.raises(DataError, match="3 contexts in the slice test: at least 8 are needed"):
        bake_runs.finish(home)


def test_options_that_contradict_or_say_nothing_are_refused(made, model: Path, tmp_path: Path) -> None:
    """`--tokens ""` trained a million tokens; `--set` took the place of options without a word."""
    prompt, kept = tmp_path / "a.txt", tmp_path / "k.txt"
    prompt.write_bytes(b"Be brief.\r\n")
    kept.write_text("x\n")
    kept.with_suffix(".check.json").write_text("{")  # of a prompt that is not baked

    def refused(*words: str, command: str = "bake") -> str:
        args = (command, str(model), *(("--prompt", str(prompt)) if command == "bake" else ()))
        result = call(made[0].folder, *args, *words, "--detach")
        assert result.exit_code != 0
        return f"{result.output} {result.exception}"

    assert "--set train contradicts another option" in refused("--lora", "4", "--set", "train=full")
    checks, prompts = "checks=[null]", 'prompts=["other"]'
    assert "--set prompts contradicts another option" in refused("--set", checks, "--set", prompts)
    assert "tokens: Input should be a valid integer" in refused("--tokens", "", command="student")
    assert f"the prompt {tmp_path} cannot be read" in refused("--prompt", str(tmp_path))
    assert script.read("prompts", [prompt]) == {"prompts": ["Be brief.\n"], "checks": []}
    assert script.read("others", [kept]) == {"others": ["x\n"]}


def test_the_command_reads_prompts_from_files(made, model: Path, tmp_path: Path) -> None:
    home = made[0]
    missing = call(home.folder, "bake", str(model), "--prompt", str(tmp_path / "no.txt"))
    assert missing.exit_code != 0
    assert "no.txt cannot be read" in str(missing.exception)
    (tmp_path / "empty.txt").write_text(" \n")
    empty = call(home.folder, "bake", str(model), "--prompt", str(tmp_path / "empty.txt"))
    assert "has no text" in str(empty.exception)
    (tmp_path / "a.txt").write_text(PROMPT)
    (tmp_path / "b.txt").write_text("name=x\n")
    check = tmp_path / "a.check.json"
    check.write_text("{")
    broken = call(home.folder, "bake", str(model), "--prompt", str(tmp_path / "a.txt"))
    assert "a.check.json cannot be read as JSON" in str(broken.exception)
    check.write_text('{"kind": "pattern", "pattern": "x"}')
    args = ["--prompt", str(tmp_path / "a.txt"), "--keep", str(tmp_path / "b.txt"), "--detach"]
    for file in texts(tmp_path):
        args += ["--data", file]
    for name in ("context", "context_tokens", "reply_tokens", "neutral_tokens"):
        args += ["--set", f"{name}={QUICK[name]}"]
    args += ["--set", 'contexts=["rows"]', "--set", "generic=false", "--set", "built_in=[]"]
    succeeds(home.folder, "bake", str(model), *args, "--json")
