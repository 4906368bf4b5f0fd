"""Function calls: right by their schemas, said in the request, and never shared between slices."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.evaluation.data import conversations
from agent_forge.evaluation.data.slices import SLICES, Slice
from agent_forge.evaluation.task_families import function_calls
from agent_forge.evaluation.task_families.function_calls import LEVELS, SHARES, CallTask, dialogue, task
from agent_forge.evaluation.task_families.offered_functions import (
    functions,
    results,
    talk,
    templates,
    vocabulary,
)
from agent_forge.evaluation.task_families.spoken_values import DATES, MONTHS, TIMES, WORDS, Mention

#: Names the folder of the unpacked wheel of bfcl-eval.
BENCHMARK = "FORGE_BFCL"
DISJOINT: tuple[Slice, ...] = ("train", "selection", "test")
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}
tasks = st.builds(
    task, st.sampled_from(SLICES), st.integers(0, 99), st.integers(0, 10**6), st.integers(1, LEVELS)
)


@cache
def many() -> list[CallTask]:
    """Return tasks of all slices and levels."""
    return [task(on, 7, number) for on in SLICES for number in range(300)]


@cache
def dialogues() -> list[list[CallTask]]:
    """Return the tasks of conversations of all slices."""
    return [dialogue(on, 7, number, 3) for on in SLICES for number in range(150)]


def of_kind(kind: str) -> list[CallTask]:
    """Return the tasks of a kind."""
    return [item for item in many() if item.kind == kind]


def signature(item: CallTask, name: str) -> dict[str, Any]:
    """Return the parameters of the only function with this name."""
    (tool,) = [tool["function"] for tool in item.tools if tool["function"]["name"] == name]
    return tool["parameters"]


def check(value: Any, schema: dict[str, Any]) -> None:
    """Assert that a value is of a JSON schema, as far as the family's schemas go."""
    assert isinstance(value, TYPES[schema["type"]])
    assert schema["type"] == "boolean" or not isinstance(value, bool)
    assert value in schema.get("enum", [value])
    for item in value if schema["type"] == "array" else ():
        check(item, schema["items"])
    if schema["type"] == "object":
        assert set(schema["required"]) <= value.keys() <= schema["properties"].keys()
        for key, inner in value.items():
            check(inner, schema["properties"][key])


@cache
def words_of() -> dict[str, set[str]]:
    """Return value → the words for it, of the vocabulary's choices and of values with other words."""
    words: dict[str, set[str]] = {}
    for pool in vocabulary()["pools"].values():
        for entry in pool:
            if isinstance(entry, list):
                words.setdefault(entry[0], set()).update(entry)
    topics = [vocabulary(), *vocabulary()["topics"].values()]
    for source in (source for topic in topics for source in topic["arguments"].values()):
        for choice, phrases in source.get("choices", {}).items():
            words.setdefault(choice, set()).update(phrases)
        for choice in ("true", "false"):
            words.setdefault(choice, set()).update(source.get(choice, ()))
    return words


def spoken(value: Any, request: str) -> bool:
    """Return True if a request says a value, in any of the words for it."""
    if isinstance(value, list):
        return all(spoken(item, request) for item in value)
    if isinstance(value, dict):
        return all(spoken(item, request) for item in value.values())
    if isinstance(value, bool) or (isinstance(value, str) and value in words_of()):
        texts = words_of()[json.dumps(value) if isinstance(value, bool) else value]
        return any(text.lower() in request.lower() for text in {*texts, str(value)})
    if isinstance(value, str):
        digits = re.findall(r"\d+", value)
        dated = re.fullmatch(r"[\d/.:-]+( [AP]M)?", value) and any(
            month[:3] in request or digits[0] in request for month in MONTHS
        )
        return value.lower() in request.lower() or bool(dated) or ":" in value
    texts = {str(value), f"{value:,}", f"{round(value * 100, 5):g}%"}
    if isinstance(value, int) and 0 <= value < len(WORDS):
        texts.add(WORDS[value])
    return any(text in request for text in texts)


def strings(value: Any) -> Iterator[str]:
    """Yield the strings of a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for item in pair for text in strings(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in strings(item))


def runs(value: Any, length: int = 8) -> set[str]:
    """Return every run of eight words in the strings of a JSON value, in lower case."""
    texts = (re.findall(r"[a-z0-9]+", text.lower()) for text in strings(value))
    return {
        " ".join(words[start : start + length])
        for words in texts
        for start in range(len(words) - length + 1)
    }


def read_benchmark(folder: Path) -> set[str]:
    """Return the runs of the benchmark's data files: JSON, JSON lines, or plain text."""
    collected = set[str]()
    for path in (path for path in folder.rglob("data/**/*") if path.is_file()):
        text = path.read_text("utf-8")
        try:
            collected |= runs(json.loads(text))
        except ValueError:
            lines = text.splitlines() if path.suffix == ".json" else []
            collected |= runs([json.loads(line) for line in lines if line.strip()] or text)
    return collected


@given(tasks)
def test_a_task_is_right_by_its_schemas_and_a_function_of_its_arguments(item: CallTask) -> None:
    """A wrong call in the training data would teach the wrong call."""
    assert bool(item.calls) != bool(item.reply)
    assert item.request.strip() == item.request != ""
    assert not re.search(r"[{}]|  |\.\.", item.request + item.reply)
    for call in item.calls:
        parameters = signature(item, call["name"])
        check(call["arguments"], parameters)
        assert all(spoken(value, item.request) for value in call["arguments"].values()), item
    names = [tool["function"]["name"] for tool in item.tools]
    assert len(set(names)) == len(names) > 0


@given(st.sampled_from(SLICES), st.integers(0, 99), st.integers(0, 10**6), st.integers(1, LEVELS))
def test_equal_arguments_give_equal_tasks(on: Slice, seed: int, number: int, level: int) -> None:
    """A run that starts again must draw the same data."""
    assert task(on, seed, number, level) == task(on, seed, number, level)
    assert task(on, seed, number, level).level == level


def test_every_task_is_a_conversation_to_train_on() -> None:
    """The reader of data files takes the rows as they are, calls and schemas unchanged."""
    for item in many():
        messages, tools = conversations.conversation(function_calls.conversation(item))
        calls: Any = messages[1].get("tool_calls", [])
        assert [call["function"] for call in calls] == list(item.calls)
        assert (messages[0]["content"], messages[1]["content"]) == (item.request, item.reply)
        assert tools == list(item.tools)


def test_the_requests_of_a_dialogue_share_its_functions_and_are_right_by_them() -> None:
    """Each stands by itself; only after a question the call has values of the request before, too."""
    for items in dialogues():
        assert len(items) == 3 + sum(item.kind == "ask" and bool(item.reply) for item in items)
        assert len({json.dumps(item.tools) for item in items}) == 1
        for before, item in zip((None, *items), items, strict=False):
            assert bool(item.calls) != bool(item.reply)
            assert len(item.results) == len(item.calls)
            assert bool(item.closing) == bool(item.calls)
            assert not re.search(r"[{}]|  |\.\.", item.request + item.reply + item.closing)
            asks = before is not None and before.kind == "ask" and before.reply
            words = f"{before.request} {item.request}" if before and asks else item.request
            for call in item.calls:
                check(call["arguments"], signature(item, call["name"]))
                assert all(spoken(value, words) for value in call["arguments"].values()), item


def test_a_question_for_an_argument_is_followed_by_the_argument_and_the_call() -> None:
    pairs = [
        (item, after)
        for items in dialogues()
        for item, after in itertools.pairwise(items)
        if item.kind == "ask" and item.reply
    ]
    assert len(pairs) > 50
    for item, after in pairs:
        assert len(after.calls) == 1
        values = after.calls[0]["arguments"].values()
        assert any(spoken(value, after.request) for value in values), item


def test_no_function_of_a_dialogue_fits_a_request_that_none_fits() -> None:
    owners = {f["description"]: f for on in DISJOINT for f in functions(on)}
    unmet = [item for items in dialogues() for item in items if item.kind == "none"]
    assert len(unmet) > 100
    for item in unmet:
        for tool in item.tools:
            (description,) = [d for d in owners if tool["function"]["description"].startswith(d)]
            assert f" {owners[description]['gist']}" not in item.reply


def test_a_dialogue_is_a_conversation_to_train_on() -> None:
    """Calls are followed by their results, and these by words that name what is in them."""
    for items in dialogues():
        messages, tools = conversations.conversation(function_calls.conversation(*items))
        roles = "".join(message["role"][0] for message in messages)
        assert re.fullmatch(r"(ua(t+a)?)+", roles)
        assert tools == list(items[0].tools)
        for item in items:
            numbers = re.findall(r"[A-Z]-\d+|\d+(?:\.\d+)?", item.closing)
            assert all(number in json.dumps(item.results) for number in numbers)


def test_equal_arguments_give_equal_dialogues() -> None:
    assert dialogue("train", 1, 2, 4) == dialogue("train", 1, 2, 4)
    assert dialogue("train", 1, 2, 4) != dialogue("train", 1, 3, 4)


def test_kinds_have_their_shares() -> None:
    """About a fifth of the requests fit no function: a model that always calls is of no use."""
    counts = Counter(item.kind for item in many())
    assert sum(SHARES.values()) == 100
    for kind, share in SHARES.items():
        assert counts[kind] / len(many()) == pytest.approx(share / 100, abs=0.05)
    assert Counter(item.level for item in many()).keys() == set(range(1, LEVELS + 1))


def test_kinds_offer_what_their_names_say() -> None:
    """The kind decides how many functions are on offer, and how many calls are right."""
    assert all(len(item.tools) == len(item.calls) == 1 for item in of_kind("single"))
    assert all(len(item.tools) > len(item.calls) == 1 for item in of_kind("choice"))
    assert all(len(item.calls) == 2 and item.calls[0] != item.calls[1] for item in of_kind("several"))
    assert {len({call["name"] for call in item.calls}) for item in of_kind("several")} == {1, 2}
    assert all("?" in item.reply and not item.calls for item in of_kind("ask"))


def test_no_function_on_offer_fits_a_request_of_kind_none() -> None:
    """A request that a function on offer fits would teach the model not to call it."""
    owners = {f["description"]: f for on in DISJOINT for f in functions(on)}
    for item in of_kind("none"):
        for tool in item.tools:
            (description,) = [d for d in owners if tool["function"]["description"].startswith(d)]
            assert f"can {owners[description]['gist']}." not in item.reply
            assert f"function to {owners[description]['gist']}." not in item.reply


def test_questions_name_the_argument_that_a_request_leaves_out() -> None:
    """The question is about a required argument of a function on offer."""
    for item in of_kind("ask"):
        required = [
            tool["function"]["parameters"]["properties"][name]["description"].lower()
            for tool in item.tools
            for name in tool["function"]["parameters"]["required"]
        ]
        heads = [
            re.split(r"[,.]| in percent| as a decimal", text.removeprefix("the "))[0]
            for text in required
        ]
        assert any(head in item.reply.lower() for head in heads), item


def test_slices_share_neither_functions_nor_templates_nor_talk() -> None:
    """Functions to test on were never trained on; every topic has one in each slice."""
    for parts in (
        {on: {name for f in functions(on) for name in f["names"]} for on in DISJOINT},
        {on: {text for texts in templates(on).values() for text in texts} for on in DISJOINT},
        {on: {request for request, _ in talk(on)} for on in DISJOINT},
        {on: {json.dumps(result) for result, _ in results(on)} for on in DISJOINT},
    ):
        assert all(parts.values())
        assert sum(map(len, parts.values())) == len(set[str]().union(*parts.values()))
    assert all({f["topic"] for f in functions(on)} == vocabulary()["topics"].keys() for on in DISJOINT)
    assert functions("search") == functions("train")


def test_levels_have_more_arguments_and_longer_schemas() -> None:
    """A level is worth its name only if it is harder."""
    sizes = {
        level: sum(len(json.dumps(task("train", 1, n, level).tools)) for n in range(150))
        for level in (1, 3, 5)
    }
    assert sizes[1] < sizes[3] < sizes[5]


def test_dates_and_times_are_in_the_form_that_the_description_names() -> None:
    """People write dates in many ways; a call has the one that its function asks for."""
    patterns = {form: re.sub(r"\w", r"\\d", form) for form in DATES}
    patterns |= dict(zip(TIMES, (r"\d\d:\d\d", r"\d?\d:\d\d [AP]M"), strict=True))
    hits = Counter[str]()
    for item in many():
        for call in item.calls:
            for name, schema in signature(item, call["name"])["properties"].items():
                for form in (f for f in patterns if f"in the format {f}." in schema["description"]):
                    if name in call["arguments"]:
                        assert re.fullmatch(patterns[form], call["arguments"][name])
                        hits[form] += 1
    assert hits.keys() == patterns.keys()


def test_every_type_of_argument_occurs() -> None:
    """The public benchmark has arrays, objects and booleans: what is never trained on fails."""
    types = Counter(
        schema["type"]
        for item in many()
        for call in item.calls
        for name, schema in signature(item, call["name"])["properties"].items()
        if name in call["arguments"]
    )
    assert types.keys() == TYPES.keys()
    assert min(types.values()) >= 5


def test_the_frame_of_a_phrase_keeps_words_that_contain_the_value() -> None:
    """A second value needs the frame of the first: with "h of " for "height of " none is ever drawn."""
    assert Mention(8, "eight", "with a height of eight").frame == "with a height of "


@pytest.mark.parametrize("level", [0, LEVELS + 1])
def test_other_levels_are_refused(level: int) -> None:
    """A level out of range is an error of the caller's, no level of another name."""
    with pytest.raises(ValueError, match=f"level {level}"):
        task("train", 0, 0, level)


def test_no_run_of_eight_words_is_in_a_benchmark() -> None:
    """A model trained on text of the public benchmark would score without the ability."""
    folder = os.environ.get(BENCHMARK)
    if not folder:
        pytest.skip(
            f"{BENCHMARK} is not set: run `pip download --no-deps bfcl-eval`, unzip the wheel, "
            f"and set {BENCHMARK} to its folder"
        )
    benchmark = read_benchmark(Path(folder))
    assert len(benchmark) > 100_000, f"{folder} is not the unpacked wheel of bfcl-eval"
    assert not runs(vocabulary()) & benchmark
    for item in (task(on, 11, number) for on in SLICES for number in range(400)):
        texts = [item.request, item.tools, item.calls, item.reply]
        assert not runs(texts) & benchmark, item
