"""Tunings in miniature: what is learned, chosen, compared, written, shown and refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_forge.cli.data import data_command
from agent_forge.evaluation.verifiers import calls
from agent_forge.phases import tune_rounds
from agent_forge.phases.tune import BITS, GIVEN, LOSS, TUNED, Tune, TuneConfig, lost, preferred
from agent_forge.phases.tune_rounds import LONGER, RIGHT
from agent_forge.runs.errors import ConfigError, DataError, ForgeError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.studies import comparison
from agent_forge.studies.comparison import TEST
from agent_forge.studies.events import Observe
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training.windows import unpack, unpack_items
from agent_forge.worker.commands import submit
from testing.miniatures import tune_runs
from testing.models import toy_models
from testing.models.toys import Toys


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run on conversations with a function: (home, state, folder of the result)."""
    folder = tmp_path_factory.mktemp("tune")
    model, _ = toy_models.family(folder / "models", 0, max_position_embeddings=tune_runs.CONTEXT)
    home = Home(folder / "home")
    tune_runs.submit(home, model, data=tune_runs.calls(folder), **tune_runs.CALLING)
    state = tune_runs.finish(home)
    Tune().write_result(home, state, folder / "out")
    return home, state, folder / "out"


def test_the_training_reads_conversations_and_a_share_of_text(made) -> None:
    """Adapters on the examples to train on; a tenth of the tokens is text; replies are no data."""
    _, state, _ = made
    (recipe,) = Tune().trainings(state).values()
    assert recipe.objective == "lora@2"
    assert recipe.params["objective"] == "sft@1"
    assert recipe.params["params"] == {"text": ["math"]}
    assert recipe.data == pytest.approx({"conversations/calls/train": 0.9, "math": 0.1})
    assert state.started.own_template
    assert {name.partition("/")[0] for name in state.started.examples} == {
        "conversations",
        "calls",
        "words",
        "prompted-calls",
        "prompted-words",
    }


def test_the_result_is_the_best_that_leaves_text_as_it_is(made) -> None:
    """The figures on the selection slice decide, and those on the test slice are reported."""
    _, state, _ = made
    run = Tune().run(state)
    losses = {n: comparison.mean(state.answers[t.key]) for n, t in run.candidates.items()}
    texts = {n: state.answers[run.on(n, BITS).key] for n in losses}
    before = state.answers[Observe(state.started.model.recipe_id, BITS, "selection").key]
    drifts = {name: lost(before, event) for name, event in texts.items()}
    assert set(losses) == {TUNED, "tuned-0.5"}
    assert state.completed.chosen == preferred(losses, drifts, 0.02) == run.result
    figures = state.completed.figures
    arms = state.completed.arms
    gain = arms[GIVEN].nats["calls"] - arms[run.result].nats["calls"]
    assert figures["gain"].value == pytest.approx(gain)
    assert figures["gain"].low > 0
    text = arms[run.result].bits_per_byte["math"] / arms[GIVEN].bits_per_byte["math"]
    assert figures["drift"].value == pytest.approx(max(0.0, text - 1))
    assert figures["retention"].value == pytest.approx(1 / text)
    assert figures["strength"].value == {TUNED: 1.0, "tuned-0.5": 0.5}[run.result]


def test_text_that_is_predicted_better_is_no_drift() -> None:
    def event(**values: float) -> Any:
        return SimpleNamespace(values=values)

    before = event(code=1.0, prose=2.0)
    assert lost(before, event(code=0.5, prose=1.9)) == 0.0
    assert lost(before, event(code=0.5, prose=2.1)) == pytest.approx(0.05)


def test_the_best_of_those_that_drift_little_is_preferred() -> None:
    losses = {"tuned": 0.1, "tuned-0.5": 0.2, "tuned-0.8": 0.15}
    assert preferred(losses, {"tuned": 0.03, "tuned-0.5": 0.01, "tuned-0.8": 0.02}, 0.02) == "tuned-0.8"
    assert preferred(losses, {"tuned": 0.0, "tuned-0.5": 0.0, "tuned-0.8": 0.0}, 0.02) == "tuned"
    assert preferred(losses, {"tuned": 0.3, "tuned-0.5": 0.1, "tuned-0.8": 0.2}, 0.02) == "tuned-0.5"


def test_losses_and_replies_are_those_of_the_written_model(made) -> None:
    """By transformers alone: labels of −100, and greedy replies one by one."""
    home, state, out = made
    run = Tune().run(state)
    tokenizer = AutoTokenizer.from_pretrained(out / "model")
    model = AutoModelForCausalLM.from_pretrained(out / "model").eval()
    streams = Tune().work()(state, Artifacts.of(home)).text.streams
    measured = run.seen[run.result]
    for place, ids in enumerate(unpack_items(streams["conversations/calls/test"])):
        plain = torch.tensor([[int(i) if i >= 0 else -1 - int(i) for i in ids]])
        labels = torch.where(torch.tensor(ids < 0), plain, -100)
        with torch.no_grad():
            loss = model(input_ids=plain, labels=labels).loss.item()
        nats = measured.items["calls"][place] / measured.sizes["calls"][place]
        assert nats == pytest.approx(loss, rel=1e-4)
    replied = state.answers[run.on(str(run.result), RIGHT, TEST).key]
    assert replied.items.keys() == {"calls/calls", "words/calls"}
    started = state.started.model.recipe_id
    shown = state.answers[Observe(started, tune_rounds.PROMPTED, TEST).key]
    assert {name: len(scores) for name, scores in shown.items.items()} == {
        name: len(scores) for name, scores in replied.items.items()
    }
    for group, scores in replied.items.items():
        replies = unpack_items(streams[f"{group}/test"])[: len(scores)]
        for ids, score in zip(replies, scores, strict=True):
            prompt = torch.tensor([[int(i) for i in ids if i >= 0]])
            written = model.generate(prompt, max_new_tokens=8, do_sample=False)[0, prompt.shape[1] :]
            right = tokenizer.decode([-1 - int(i) for i in ids if i < 0])
            assert score == calls.is_right(tokenizer.decode(written), right)


def test_the_result_has_the_template_that_it_was_tuned_with(made) -> None:
    """Transformers renders a call and its result by it; the model's digest is the recorded one."""
    _, state, out = made
    assert digest(open_checkpoint(out / "model").tensors()) == state.completed.models["model"].digest
    tokenizer = AutoTokenizer.from_pretrained(out / "model")
    turns = [
        {"role": "user", "content": "3 ?"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"n": 3}}}]},
        {"role": "tool", "content": "4"},
    ]
    text = tokenizer.apply_chat_template(
        turns, tools=[{"type": "function", "function": {"name": "f"}}], tokenize=False
    )
    end = tokenizer.eos_token
    assert f'<tool_call>{{"name": "f", "arguments": {{"n": 3}}}}</tool_call>{end}' in text
    assert f"<|im_start|>tool\n<tool_response>4</tool_response>{end}" in text
    assert '<tools>\n{"name": "f"}\n</tools>' in text
    assert "Tuned on 24 examples" in (out / "model" / "README.md").read_text()


def test_a_model_keeps_a_template_that_writes_what_the_data_has(toys: Toys, tmp_path: Path) -> None:
    """Conversations without functions are rendered by the model's own, and replies are not compared."""
    shutil.copytree(toys.base, tmp_path / "model")
    template = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    (tmp_path / "model" / "chat_template.jinja").write_text(template)
    home = Home(tmp_path / "home")
    tune_runs.submit(home, tmp_path / "model", train="full", text_share=0.0, strengths=[])
    state = tune_runs.finish(home)
    (recipe,) = Tune().trainings(state).values()
    assert (recipe.objective, recipe.data) == ("sft@1", {"conversations/chats/train": 1.0})
    assert not state.started.own_template
    assert "calls" not in state.completed.figures
    Tune().write_result(home, state, tmp_path / "out")
    assert (tmp_path / "out" / "model" / "chat_template.jinja").read_text() == template


def test_the_rate_follows_what_is_trained() -> None:
    assert TuneConfig().rate == TuneConfig(train="lora").rate == 1e-3
    assert TuneConfig(train="full").rate == 5e-5
    assert TuneConfig(train="full", rate=1e-4).rate == 1e-4


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({}, None, "a tuning needs conversations: --data FILE"),
        ({}, [], "data file .*chats.jsonl is empty"),
        ({}, [{"text": "no turns"}] * 9, r"chats.jsonl:1: it is no conversation: give messages"),
        (
            {"context": 24},
            60,
            r"no example left in the slice selection .* 24 tokens: 60 examples are longer",
        ),
        ({"context": 65}, 60, "context is 65, the model takes 64 tokens at most"),
        ({"lora_rank": 40}, 60, "a rank of 40 is more than"),
        ({"strengths": [0.5, 0.5]}, 60, "give each name once"),
        ({"strengths": [0.5, 0.50000001]}, 60, "give each name once"),
        ({"strengths": [0.99999999]}, 60, "give each name once"),
        ({"rounds": 1, "replies": 0}, 60, "rounds are chosen by replies: give 1 or more"),
        ({"rounds": 1}, 60, "rounds need conversations with tools to train on and to choose by"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    toys: Toys, tmp_path: Path, settings: dict[str, Any], rows: Any, message: str
) -> None:
    """Before anything is started, with the file and line."""
    file = tmp_path / "chats.jsonl"
    if isinstance(rows, int):
        tune_runs.conversations(tmp_path, rows)
    elif rows is not None:
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = [str(file)] if rows is not None else []
    request = RunRequest("tune", {**tune_runs.QUICK, **settings}, {"model": [str(toys.base)]}, data)

    def refused() -> None:
        submit.check(submit.plan(request, Lookup()))

    with pytest.raises((ConfigError, DataError), match=message):
        refused()


def test_long_conversations_are_named_and_left_out(toys: Toys, tmp_path: Path) -> None:
    file = Path(tune_runs.conversations(tmp_path))
    long = {"messages": [{"role": "user", "content": "1 " * 30}, {"role": "assistant", "content": "2"}]}
    file.write_text(json.dumps({**long, "id": "long"}) + "\n" + file.read_text())
    request = RunRequest("tune", tune_runs.QUICK, {"model": [str(toys.base)]}, [str(file)])
    warnings = submit.check(submit.plan(request, Lookup())).warnings
    assert any("long have more than 48 tokens and are left out" in line for line in warnings)


def test_data_show_marks_what_is_learned(toys: Toys, tmp_path: Path, monkeypatch: Any) -> None:
    """As text with marks, and as JSON, part by part."""
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    arguments = ["show", tune_runs.conversations(tmp_path), "--model", str(toys.base), "--limit", "1"]
    output = CliRunner().invoke(data_command, arguments)
    assert output.exit_code == 0, output.output
    assert "the program's own chat template" in output.stdout
    assert "<|im_start|>assistant\n«" in output.stdout
    (example,) = json.loads(CliRunner().invoke(data_command, [*arguments, "--json"]).stdout)
    learned = [part["text"] for part in example["parts"] if part["learned"]]
    assert len(learned) == 1
    assert learned[0].endswith(" !<|endoftext|>")


def test_measures_of_a_tuning_have_tasks_of_their_own(made) -> None:
    """Loss and text of each candidate on the selection slice, all three of both arms on the test."""
    _, state, _ = made
    names = sorted(key.split("/")[1:3] for key in state.answers if key.startswith("observe/"))
    chosen = [[LOSS, "selection"]] * 2 + [[BITS, "selection"]] * 3
    compared = [[m, "test"] for m in (LOSS, BITS, RIGHT)] * 2
    assert names == sorted([*chosen, *compared, [tune_rounds.PROMPTED, "test"]])
    assert isinstance(Tune().run(state).recipes[TUNED], Train)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState]:
    """A finished run with rounds of own replies: (home, state)."""
    folder = tmp_path_factory.mktemp("rounds")
    model, _ = toy_models.family(folder / "models", 0, max_position_embeddings=tune_runs.CONTEXT)
    home = Home(folder / "home")
    tune_runs.submit(home, model, data=tune_runs.same_call(folder), **tune_runs.ROUNDS)
    return home, tune_runs.finish(home)


@pytest.mark.slow
def test_a_round_learns_from_the_models_own_replies_by_their_rewards(rounds) -> None:
    """Replies and rewards are events; the next round begins with what the round before gave."""
    home, state = rounds
    run = Tune().run(state)
    context = Tune().work()(state, Artifacts.of(home))
    tokenizer = context.text.tokenizer
    writer = run.recipes[TUNED]
    for number in (1, 2):
        name = f"own/{number}"
        sampled = state.answers[f"sample/{writer.id}"]
        replies = unpack(context.streams[name])
        assert len(replies) == 16
        assert sampled.streams[name].tokens == sum(len(each.reply) for each in replies)
        assert len({each.plain.tobytes() for each in replies[:4]}) == 1
        assert len({each.plain.tobytes() for each in replies}) == 4
        rewards = state.answers[Observe(writer.id, tune_rounds.REWARDS, name).key].items[name]
        call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
        assert rewards == tuple(
            float(calls.is_right(tokenizer.decode(each.reply.tolist()), call)) for each in replies
        )
        recipe = run.recipes[f"round-{number}"]
        assert isinstance(recipe, Train)
        assert recipe.objective == "reinforce@2"
        assert recipe.params["rewards"] == list(rewards)
        assert recipe.data_digests == {name: sampled.streams[name].digest}
        assert recipe.start == recipe.inputs["writer"] == writer.id
        groups = [rewards[first : first + 4] for first in range(0, 16, 4)]
        assert recipe.steps == sum(4 for group in groups if len({*group}) > 1) > 0
        writer = recipe


@pytest.mark.slow
@pytest.mark.parametrize("learn_by", ["preferences", "demonstrations"])
def test_a_round_learns_from_the_same_replies_in_other_ways(
    learn_by: str, rounds, tmp_path: Path
) -> None:
    """Replies and rewards are those of a round that learns by rewards: its writer is the same model."""
    before = unpack(Tune().work()(rounds[1], Artifacts.of(rounds[0])).streams["own/1"])
    model, _ = toy_models.family(tmp_path / "models", 0, max_position_embeddings=tune_runs.CONTEXT)
    home, settings = Home(tmp_path / "home"), {**tune_runs.ROUNDS, "rounds": 1, "learn_by": learn_by}
    tune_runs.submit(home, model, data=tune_runs.same_call(tmp_path), **settings)
    state = tune_runs.finish(home)
    run, context = Tune().run(state), Tune().work()(state, Artifacts.of(home))
    (name,) = (name for name in run.recipes["round-1"].data if name.endswith("/1"))
    recipe, writer, replies = (
        run.recipes["round-1"],
        run.recipes[TUNED].id,
        unpack(context.streams[name]),
    )
    assert [each.plain.tolist() for each in replies] == [each.plain.tolist() for each in before]
    rewards = state.answers[Observe(writer, tune_rounds.REWARDS, name).key].items[name]
    if learn_by == "preferences":
        assert (recipe.objective, recipe.inputs) == ("preference@1", {"writer": writer})
        right = [sum(rewards[first : first + 4]) for first in range(0, 16, 4)]
        assert recipe.steps == sum(min(count, 4 - count) for count in right) > 0
        assert all(each.prompted.tolist() == each.plain.tolist() for each in replies)
    else:
        assert (recipe.objective, recipe.inputs) == ("bake@1", {"teacher": writer})
        assert recipe.steps == len(replies) == 16
        decode = context.text.tokenizer.decode
        for each in replies:
            request = decode(each.plain.tolist()).split("<|im_start|>user")[1]
            shown = decode(each.prompted.tolist()).split("<|im_start|>user")[1:]
            assert shown[1] == request
            assert shown[0].startswith(request)
            assert shown[0].removeprefix(request).startswith('<tool_call>{"name": "f"')
    assert state.completed.figures["rounds"].value is not None


@pytest.mark.slow
def test_rounds_are_compared_with_as_many_steps_on_conversations(rounds) -> None:
    """The result is the first of those with the most right replies on the selection slice."""
    _, state = rounds
    run = Tune().run(state)
    longer, tuned = run.recipes[LONGER], run.recipes[TUNED]
    assert isinstance(longer, Train)
    assert isinstance(tuned, Train)
    assert longer.steps == sum(run.trainings[f"round-{number}"].steps for number in (1, 2))
    assert (longer.start, longer.objective, longer.data) == (tuned.id, "sft@1", tuned.data)
    names = [TUNED, "round-1", "round-2", LONGER]
    right = {name: state.answers[run.on(name, RIGHT).key].values["calls/call"] for name in names}
    assert state.completed.chosen == max(names, key=right.__getitem__)
    assert set(run.arms) == {GIVEN, TUNED, "round-2", LONGER, state.completed.chosen}
    counts = {"calls/call": 3, "words/call": 1}
    last, further = (
        sum(count * state.completed.arms[arm].right[group] for group, count in counts.items()) / 4
        for arm in ("round-2", LONGER)
    )
    assert state.completed.figures["rounds"].value == pytest.approx(last - further)


@pytest.mark.slow
def test_replies_that_the_cache_lacks_are_written_again(rounds, tmp_path: Path) -> None:
    home, state = rounds
    shutil.copytree(home.folder, tmp_path / "home")
    context = Tune().work()(state, Artifacts.of(Home(tmp_path / "home")))
    names = ("own/1", "own/2")
    before = {name: context.streams[name].tobytes() for name in names}
    for event in state.answers.values():
        if event.type == "sampled":
            shutil.rmtree(context._cache.files(event.digest)[0].parent)
    again = Tune().work()(state, Artifacts.of(Home(tmp_path / "home")))
    assert {name: again.streams[name].tobytes() for name in names} == before


def test_what_the_model_cannot_reply_to_is_not_compared(tmp_path: Path) -> None:
    """Beginnings that leave no room for `reply_tokens` before the last position are left out."""
    size = {"max_position_embeddings": tune_runs.CONTEXT}
    model, _ = toy_models.family(tmp_path / "models", 0, **size)
    home, settings = Home(tmp_path / "home"), {**tune_runs.CALLING, "reply_tokens": 400}
    tune_runs.submit(home, model, data=tune_runs.calls(tmp_path), **settings)
    state = tune_runs.finish(home)
    run = Tune().run(state)
    assert state.answers[run.on(str(run.result), RIGHT, TEST).key].items == {}
    assert not {"calls", "silent"} & set(state.completed.figures)


def test_rounds_without_room_for_replies_are_refused_at_the_start(tmp_path: Path) -> None:
    """Before a model is trained: of 512 tokens a reply may have 500."""
    size = {"max_position_embeddings": tune_runs.CONTEXT}
    model, _ = toy_models.family(tmp_path / "models", 0, **size)
    home, settings = Home(tmp_path / "home"), {**tune_runs.ROUNDS, "reply_tokens": 500}
    tune_runs.submit(home, model, data=tune_runs.same_call(tmp_path), **settings)
    with pytest.raises(ForgeError, match="leaves room for a reply of 500 tokens"):
        tune_runs.finish(home)


def test_one_of_several_templates_is_in_the_result(tmp_path: Path) -> None:
    """A model with a template for functions beside the usual one is tuned with that.

    Runs copy no folder of further templates: what is there counts neither for a check nor for a run.
    """
    size = {"max_position_embeddings": tune_runs.CONTEXT}
    model, _ = toy_models.family(tmp_path / "models", 0, **size)
    shutil.copytree(model, tmp_path / "model")
    usual = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    tools = "{{ tools | tojson if tools else '' }}{% for m in messages %}{{ m.content }}"
    tools += "{{ m.tool_calls | tojson if m.tool_calls else '' }}{{ eos_token }}{% endfor %}"
    settings = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    both = [{"name": "default", "template": usual}, {"name": "tool_use", "template": tools}]
    text = json.dumps({**settings, "chat_template": both})
    (tmp_path / "model" / "tokenizer_config.json").write_text(text)
    home = Home(tmp_path / "home")
    file = tune_runs.calls(tmp_path)
    tune_runs.submit(home, tmp_path / "model", data=file, context=256, strengths=[], replies=0)
    state = tune_runs.finish(home)
    assert not state.started.own_template
    Tune().write_result(home, state, tmp_path / "out")
    assert (tmp_path / "out" / "model" / "chat_template.jinja").read_text() == tools

    shutil.copytree(model, tmp_path / "further")
    (tmp_path / "further" / "chat_template.jinja").write_text(usual)
    (tmp_path / "further" / "additional_chat_templates").mkdir()
    (tmp_path / "further" / "additional_chat_templates" / "tool_use.jinja").write_text(tools)
    settings = {**tune_runs.QUICK, "context": 256}
    request = RunRequest("tune", settings, {"model": [str(tmp_path / "further")]}, [file])
    with pytest.raises(DataError, match="no example left"):  # of the program's own, which is longer
        submit.check(submit.plan(request, Lookup()))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("calls:0", "calls:0: give calls:COUNT, from calls:1 to calls:99999"),
        ("calls:100000", "calls:100000: give calls:COUNT"),
        ("calls:9x10", "or calls:COUNTxREQUESTS, up to 9 requests in each conversation"),
        ("[]", "the data has no conversations"),
        ("calls:9", "context is 99, the model takes 64 tokens at most"),
    ],
)
def test_data_show_refuses_what_has_no_conversations(
    toys: Toys, tmp_path: Path, monkeypatch: Any, place: str, message: str
) -> None:
    """Counts beyond the bounds, an empty list, and windows that the model does not take."""
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    if place == "[]":
        place = str(tmp_path / "empty.json")
        Path(place).write_text("[]")
    arguments = ["show", place, "--model", str(toys.base), "--context", "99"]
    error = CliRunner().invoke(data_command, arguments).exception
    assert isinstance(error, ConfigError | DataError)
    assert message in str(error)
