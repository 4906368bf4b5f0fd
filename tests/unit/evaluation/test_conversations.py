"""Rows of conversations to train on: the forms that data sets have, what is refused, and slices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation.data import conversations
from agent_forge.evaluation.data.slices import SLICES, TRAINING_SHARES
from agent_forge.runs.errors import DataError

QUESTION = {"role": "user", "content": "Weather in Oslo?"}
ANSWER = {"role": "assistant", "content": "Rain."}
SCHEMA = {
    "name": "weather",
    "description": "Return the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOL = {"type": "function", "function": SCHEMA}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def messages_of(row: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the messages of a row without tools."""
    messages, tools = conversations.conversation(row)
    assert tools == []
    return messages


# ---- OpenAI's form -------------------------------------------------------------------------------


def test_messages_of_openai_are_taken_as_they_are() -> None:
    """The form of chat templates needs no change; keys that no template reads are left out."""
    row = {
        "messages": [
            {"role": "system", "content": "Be short."},
            {**QUESTION, "timestamp": 5},
            {**ANSWER, "tool_calls": None, "weight": None},
        ]
    }
    assert messages_of(row) == [{"role": "system", "content": "Be short."}, QUESTION, ANSWER]


def test_messages_may_be_json_text() -> None:
    """A cell of a CSV file is text."""
    assert messages_of({"messages": json.dumps([QUESTION, ANSWER]), "tools": ""}) == [QUESTION, ANSWER]


@pytest.mark.parametrize("arguments", ['{"city": "Oslo"}', {"city": "Oslo"}], ids=["text", "object"])
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}], ids=["", "None", "empty"])
def test_calls_have_their_arguments_as_an_object(arguments: object, content: dict[str, object]) -> None:
    """OpenAI writes arguments as JSON text and no content; templates need an object and a text."""
    call = {"id": "call_7", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "call_7", "name": "weather", "content": "rain"}
    row = {
        "messages": [QUESTION, {"role": "assistant", **content, "tool_calls": [call]}, result, ANSWER]
    }
    assert messages_of(row) == [
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": "call_7"}]},
        {"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "call_7"},
        ANSWER,
    ]


def test_a_turn_has_words_and_several_calls() -> None:
    """A call may lack the wrapper, and a function may take no arguments."""
    calls = [CALL, {"name": "now", "arguments": ""}, {"name": "today"}]
    turn = messages_of({"messages": [QUESTION, {**assistant("I look."), "tool_calls": calls}]})[1]
    assert turn["content"] == "I look."
    assert turn["tool_calls"] == [
        CALL,
        {"type": "function", "function": {"name": "now", "arguments": {}}},
        {"type": "function", "function": {"name": "today", "arguments": {}}},
    ]


def test_parts_of_a_content_are_joined() -> None:
    """OpenAI and many exports write a text as a list of parts."""
    parts = [{"type": "text", "text": "Weather "}, "in ", {"type": "text", "text": "Oslo?"}]
    assert messages_of({"messages": [{"role": "user", "content": parts}, ANSWER]}) == [QUESTION, ANSWER]


def test_a_developer_is_the_system() -> None:
    """No chat template knows OpenAI's newer role."""
    row = {"messages": [{"role": "developer", "content": "Be short."}, QUESTION, ANSWER]}
    assert messages_of(row)[0] == {"role": "system", "content": "Be short."}


def test_a_weight_stays_with_its_message() -> None:
    """A turn of weight 0 is read and not learned."""
    row = {"messages": [QUESTION, {**ANSWER, "weight": 0}, QUESTION, {**ANSWER, "weight": 1}]}
    assert [message.get("weight") for message in messages_of(row)] == [None, 0, None, 1]


# ---- ShareGPT's form -----------------------------------------------------------------------------


def test_sharegpt_has_other_names_of_roles() -> None:
    """The system prompt is a key of the row, or a turn."""
    turns = [{"from": "human", "value": "Weather in Oslo?"}, {"from": "gpt", "value": "Rain."}]
    system = {"role": "system", "content": "Be short."}
    assert messages_of({"conversations": turns}) == [QUESTION, ANSWER]
    assert messages_of({"conversations": turns, "system": "Be short."}) == [system, QUESTION, ANSWER]
    prompted = [{"from": "system", "value": "Be short."}, *turns]
    assert messages_of({"conversations": prompted, "system": ""}) == [system, QUESTION, ANSWER]


@pytest.mark.parametrize(
    "call", [CALL["function"], json.dumps(CALL["function"])], ids=["object", "text"]
)
@pytest.mark.parametrize("role", ["observation", "function_response", "tool", "function"])
def test_a_function_call_of_sharegpt_is_the_assistants(call: object, role: str) -> None:
    """Its value is the call, and the next turn is what the function returned."""
    turns = [
        {"from": "human", "value": "Weather in Oslo?"},
        {"from": "function_call", "value": call},
        {"from": role, "value": '{"sky": "rain"}'},
        {"from": "gpt", "value": "Rain."},
    ]
    messages, tools = conversations.conversation(
        {"conversations": turns, "tools": json.dumps([SCHEMA])}
    )
    assert messages == [
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": '{"sky": "rain"}'},
        ANSWER,
    ]
    assert tools == [TOOL]


# ---- Alpaca's form -------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [[["Hi", "Hello."]], '[["Hi", "Hello."]]'], ids=["list", "text"])
def test_alpaca_has_its_history_before_the_instruction(history: object) -> None:
    """The input follows the instruction after an empty line."""
    row = {
        "instruction": "Translate.",
        "input": "Regen",
        "output": "rain",
        "system": "Be short.",
        "history": history,
    }
    assert messages_of(row) == [
        {"role": "system", "content": "Be short."},
        user("Hi"),
        assistant("Hello."),
        user("Translate.\n\nRegen"),
        assistant("rain"),
    ]


@pytest.mark.parametrize(
    "rest", [{}, {"input": "", "system": "", "history": ""}, {"input": None, "history": []}]
)
def test_alpaca_needs_instruction_and_output_only(rest: dict[str, object]) -> None:
    """Empty cells of a table count as missing."""
    row = {"instruction": "Name a colour.", "output": "Red.", **rest}
    assert messages_of(row) == [user("Name a colour."), assistant("Red.")]


# ---- prompt and completion -----------------------------------------------------------------------


def test_a_prompt_and_its_completion_are_an_exchange() -> None:
    """Spaces stay: they are part of what the model reads and writes."""
    row = {"prompt": "Name a colour. ", "completion": " Red."}
    assert messages_of(row) == [user("Name a colour. "), assistant(" Red.")]


def test_only_the_completion_of_messages_is_learned() -> None:
    """A prompt may have earlier replies, which are not the answer."""
    row = {"prompt": [user("Hi"), assistant("Hello."), QUESTION], "completion": [ANSWER]}
    assert messages_of(row) == [
        {**user("Hi"), "weight": 0},
        {**assistant("Hello."), "weight": 0},
        {**QUESTION, "weight": 0},
        ANSWER,
    ]


# ---- all forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [True, False], ids=["wrapped", "bare"])
@pytest.mark.parametrize("text", [True, False], ids=["text", "list"])
@pytest.mark.parametrize(
    "row",
    [
        {"messages": [QUESTION, ANSWER]},
        {"conversations": [QUESTION, ANSWER]},
        {"instruction": QUESTION["content"], "output": ANSWER["content"]},
        {"prompt": QUESTION["content"], "completion": ANSWER["content"]},
    ],
    ids=lambda row: next(iter(row)),
)
def test_tools_are_wrapped_schemas_in_every_form(
    row: dict[str, object], text: bool, wrapped: bool
) -> None:
    """Templates expect {"type": "function", "function": schema}; data sets often have the schema."""
    listed = [TOOL if wrapped else SCHEMA]
    messages, tools = conversations.conversation(
        {**row, "tools": json.dumps(listed) if text else listed}
    )
    assert messages == [QUESTION, ANSWER]
    assert tools == [TOOL]


def test_messages_come_before_other_keys_of_a_row() -> None:
    """Data sets such as UltraChat repeat the first question as `prompt`; empty cells do not count."""
    row = {"prompt": "Weather in Oslo?", "messages": [QUESTION, ANSWER]}
    assert messages_of(row) == [QUESTION, ANSWER]
    table = {"messages": "", "conversations": None, "instruction": "Name a colour.", "output": "Red."}
    assert messages_of(table) == [user("Name a colour."), assistant("Red.")]


def calling(call: object) -> dict[str, object]:
    return {"messages": [QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}]}


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("no form", {"text": "a document"}, r"it is no conversation: give messages"),
    ("all weigh 0", {"messages": [QUESTION, {**ANSWER, "weight": 0}]}, "or all weigh 0"),
    (
        "role no text",
        {"messages": [{"role": ["user"], "content": "?"}]},
        r"message 0 .* is of \['user'\]",
    ),
    ("calls a number", {"messages": [QUESTION, {**ANSWER, "tool_calls": 5}]}, "its tool_calls are 5"),
    ("history a number", {"instruction": "a", "output": "b", "history": 5}, "its history are 5"),
    (
        "no parts",
        {"messages": [{"role": "user", "content": []}, ANSWER]},
        r"content of message 0 .* is ''",
    ),
    (
        "blank part",
        {"messages": [{"role": "user", "content": [" "]}, ANSWER]},
        r"content of message 0 \(from 0\) is ' '",
    ),
    (
        "system a number",
        {"system": 5, "conversations": [{"from": "human", "value": "?"}]},
        "its system is 5: it is a text",
    ),
    ("nothing", {}, r"it is no conversation"),
    ("empty list", {"messages": []}, r"it is no conversation"),
    ("no list", {"messages": {"role": "user"}}, r"its messages are \{'role': 'user'\}: .* a list"),
    ("no JSON", {"messages": "Hello"}, r"its messages are no JSON: 'Hello'"),
    ("empty JSON", {"messages": "[]"}, "its messages are empty"),
    ("no message", {"messages": [QUESTION, "Rain."]}, r"message 1 \(from 0\) is 'Rain\.'"),
    ("no role", {"messages": [{"content": "?"}, ANSWER]}, r"message 0 \(from 0\) is of None: system, "),
    ("other role", {"messages": [{**QUESTION, "role": "bot"}]}, r"message 0 .* is of 'bot': system, "),
    ("no content", {"messages": [QUESTION, {"role": "assistant"}]}, r"content of message 1 .* is None"),
    ("blank", {"messages": [{**QUESTION, "content": " \n"}, ANSWER]}, r"content of message 0 .*' \\n'"),
    ("number", {"messages": [{**QUESTION, "content": 5}, ANSWER]}, r"content of message 0 .* is 5"),
    (
        "picture",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, ANSWER]},
        r"the content of message 0 \(from 0\) is \[\{'type': 'image_url'\}\]: it is a text",
    ),
    (
        "no reply",
        {"messages": [QUESTION]},
        "no message is the assistant's, or all weigh 0: there is nothing to learn",
    ),
    ("call without name", calling({"arguments": {}}), r"a call in message 1 \(from 0\) has no name"),
    ("call is text", calling("weather"), r"a call in message 1 \(from 0\) has no name"),
    (
        "arguments",
        calling({"name": "f", "arguments": [1]}),
        r"the arguments of f in message 1 .* object",
    ),
    ("argument text", calling({"name": "f", "arguments": "{x"}), r"its arguments are no JSON: '\{x'"),
    (
        "user's call",
        {"messages": [{**QUESTION, "tool_calls": [CALL]}, ANSWER]},
        r"message 0 \(from 0\) has calls, and is the user's",
    ),
    ("tools", {"messages": [QUESTION, ANSWER], "tools": SCHEMA}, r"its tools are \{.*: .* as a list"),
    ("tools' text", {"messages": [QUESTION, ANSWER], "tools": "f()"}, r"its tools are no JSON"),
    ("tool", {"messages": [QUESTION, ANSWER], "tools": ["f"]}, r"a tool is 'f': it is an object"),
    (
        "nameless tool",
        {"messages": [QUESTION, ANSWER], "tools": [{"type": "function", "function": {}}]},
        r"a tool is \{'type': 'function', 'function': \{\}\}: it is an object with a name",
    ),
    ("ShareGPT", {"conversations": [{"from": "narrator", "value": "x"}]}, r"is of 'narrator'"),
    (
        "ShareGPT's call",
        {"conversations": [{"from": "function_call", "value": "weather(Oslo)"}]},
        r"its function_call are no JSON: 'weather\(Oslo\)'",
    ),
    ("no output", {"instruction": "Name a colour."}, r"its output is None: it is a text"),
    ("blank output", {"instruction": "Name a colour.", "output": " "}, r"its output is ' '"),
    ("input", {"instruction": "Add.", "input": 5, "output": "6"}, r"its input is 5: it is a text"),
    ("history", {"instruction": "x", "output": "y", "history": [["z"]]}, r"is not a list of pairs"),
    (
        "history's text",
        {"instruction": "x", "output": "y", "history": [["z", None]]},
        r"its history is None: it is a text",
    ),
    ("no completion", {"prompt": "Name a colour."}, r"its completion is None: it is a text"),
    ("prompt", {"prompt": 5, "completion": "Red."}, r"its prompt are 5: write them as a list"),
    ("completion", {"prompt": [QUESTION], "completion": None}, r"its completion are None: .* a list"),
    ("only asks", {"prompt": [QUESTION], "completion": [QUESTION]}, r"no message is the assistant's"),
]


@pytest.mark.parametrize(("row", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_row_is_refused_with_its_reason(row: dict[str, object], message: str) -> None:
    """A wrong reading would be learned, and no result would show it."""
    with pytest.raises(ValueError, match=message):
        conversations.conversation(row)


# ---- files ---------------------------------------------------------------------------------------


def rows(count: int, **further: object) -> list[dict[str, object]]:
    """Return rows whose contents differ by a number."""
    return [
        {"messages": [user(f"Double {number}."), assistant(str(2 * number))], **further}
        for number in range(count)
    ]


def split() -> list[dict[str, object]]:
    """Return three rows, in the slices that a training needs."""
    return [
        {"prompt": f"In {place}?", "completion": "Yes.", "slice": place}
        for place in ("train", "selection", "test")
    ]


def write(file: Path, *content: object) -> str:
    """Write rows as JSONL; return the file's path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
    return str(file)


def test_a_file_is_read_in_its_order(tmp_path: Path) -> None:
    """The domain is the file's name, the id its name and line."""
    talks, notes = conversations.read([write(tmp_path / "sums.jsonl", *rows(300))])
    assert [conversation.messages for conversation in talks] == [row["messages"] for row in rows(300)]
    assert [talks[0].id, talks[299].id] == ["sums.jsonl:1", "sums.jsonl:300"]
    assert {conversation.domain for conversation in talks} == {"sums"}
    assert notes == []


def test_most_conversations_are_to_train_on(tmp_path: Path) -> None:
    """Slices have about the shares of texts to train on: within 5 standard deviations."""
    count = 2000
    talks, _ = conversations.read([write(tmp_path / "sums.jsonl", *rows(count))])
    for place in SLICES:
        share = TRAINING_SHARES[place]
        size = sum(conversation.slice == place for conversation in talks)
        assert abs(size - count * share) < 5 * (count * share * (1 - share)) ** 0.5, place


def test_equal_conversations_count_once(tmp_path: Path) -> None:
    """The forms may differ: what counts is what the model reads and writes."""
    shared = {"messages": [QUESTION, ANSWER]}
    same = {"prompt": QUESTION["content"], "completion": ANSWER["content"]}
    file = write(tmp_path / "x.jsonl", *split(), shared, same, shared)
    talks, notes = conversations.read([file])
    assert [conversation.id for conversation in talks] == [f"x.jsonl:{line}" for line in (1, 2, 3, 4)]
    assert notes == ["equal conversations count once: 2 left out."]


def test_other_tools_make_another_conversation(tmp_path: Path) -> None:
    """The model reads the functions, so they are part of the content."""
    shared = {"messages": [QUESTION, ANSWER]}
    file = write(tmp_path / "x.jsonl", *split(), shared, {**shared, "tools": [TOOL]})
    talks, notes = conversations.read([file])
    assert [list(conversation.tools) for conversation in talks[3:]] == [[], [TOOL]]
    assert notes == []


def test_the_content_decides_the_slice(tmp_path: Path) -> None:
    """Neither file, order nor domain moves a conversation: none is trained on and measured on."""
    first = write(tmp_path / "a.jsonl", *rows(300))
    second = write(tmp_path / "b.jsonl", *reversed(rows(300)))
    slices = [
        {str(conversation.messages): conversation.slice for conversation in conversations.read(data)[0]}
        for data in ([first], [second], [f"other={first}"])
    ]
    assert slices[0] == slices[1] == slices[2]
    talks, notes = conversations.read([first, second])
    assert {conversation.domain for conversation in talks} == {"a"}
    assert len(talks) == 300
    assert notes == ["equal conversations count once: 300 left out."]


def test_a_rows_own_slice_id_and_domain_win(tmp_path: Path) -> None:
    """The authors of a data set know more than a hash and a file's name say."""
    rows = [{**row, "domain": "places"} for row in split()]
    file = write(tmp_path / "x.jsonl", {**rows[0], "id": 7}, *rows[1:])
    talks, _ = conversations.read([file])
    assert [(c.id, c.domain, c.slice) for c in talks] == [
        ("7", "places", "train"),
        ("x.jsonl:2", "places", "selection"),
        ("x.jsonl:3", "places", "test"),
    ]


def test_a_domain_is_named_before_the_path(tmp_path: Path) -> None:
    """DOMAIN=PATH names the domain of all files of a folder."""
    write(tmp_path / "data" / "a.jsonl", *split()[:1])
    write(tmp_path / "data" / "deep" / "b.jsonl", *split()[1:])
    talks, _ = conversations.read([f"places={tmp_path / 'data'}"])
    assert [(c.id, c.domain) for c in talks] == [
        ("a.jsonl:1", "places"),
        ("b.jsonl:1", "places"),
        ("b.jsonl:2", "places"),
    ]


def test_tables_are_read_as_lines_are(tmp_path: Path) -> None:
    """CSV and JSON files hold the same conversations as JSONL."""
    lines = write(tmp_path / "x.jsonl", *split())
    array = tmp_path / "y.json"
    array.write_text(json.dumps(split()), "utf-8")
    table = tmp_path / "z.csv"
    cells = [f"{row['prompt']},{row['completion']},{row['slice']},\n" for row in split()]
    table.write_text("prompt,completion,slice,tools\n" + "".join(cells), "utf-8")
    contents = [
        [(c.messages, c.slice, c.tools) for c in conversations.read([str(file)])[0]]
        for file in (lines, array, table)
    ]
    assert contents[0] == contents[1] == contents[2]


def test_missing_fields_of_parquet_are_no_content(tmp_path: Path) -> None:
    """All structs of a Parquet column have the same fields, so most of them are None."""
    import pyarrow
    from pyarrow import parquet

    call = {"id": "call_7", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    asking = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "content": "noon", "tool_call_id": "call_7"}
    table = [{"messages": [user(place), asking, result, ANSWER], "slice": place} for place in SLICES]
    file = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(table), file)
    talks, _ = conversations.read([str(file)])
    function = {"name": "now", "arguments": {}}
    call = {"type": "function", "id": "call_7", "function": function}
    calling_turn = {**asking, "content": "", "tool_calls": [call]}
    assert [talk.messages for talk in talks] == [
        [user(place), calling_turn, result, ANSWER] for place in SLICES
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a document"}, r"x\.jsonl:4: it is no conversation: .* completion\."),
        ({"messages": [QUESTION]}, r"x\.jsonl:4: no message is the assistant's.*\."),
        (
            {"messages": [QUESTION, ANSWER], "slice": "validation"},
            r"x\.jsonl:4: its slice .*validation",
        ),
        (["a list"], r"x\.jsonl:4: a line must be a JSON object"),
    ],
    ids=["form", "reply", "slice", "JSON"],
)
def test_an_error_names_file_and_line(tmp_path: Path, row: object, message: str) -> None:
    """A user finds the row among thousands."""
    with pytest.raises(DataError, match=message):
        conversations.read([write(tmp_path / "x.jsonl", *split(), row)])


def test_an_error_names_the_row_of_a_table(tmp_path: Path) -> None:
    """Tables have no lines: elements count from 1, and the first row of a CSV file has names."""
    array, table = tmp_path / "y.json", tmp_path / "z.csv"
    array.write_text(json.dumps([*split(), {"prompt": "?"}]), "utf-8")
    table.write_text("prompt,completion\nHi,Hello.\nHi,\n", "utf-8")
    with pytest.raises(DataError, match=r"y\.json: element 4: its completion is None"):
        conversations.read([str(array)])
    with pytest.raises(DataError, match=r"z\.csv: row 3: its completion is ''"):
        conversations.read([str(table)])


@pytest.mark.parametrize("lacking", ["train", "selection", "test"])
def test_a_slice_without_conversations_is_refused(tmp_path: Path, lacking: str) -> None:
    """A training without a slice to choose or to measure on would say nothing."""
    file = write(tmp_path / "x.jsonl", *(row for row in split() if row["slice"] != lacking))
    with pytest.raises(DataError, match=f"has 2 conversations, and none in the slice {lacking}: give"):
        conversations.read([file])


def test_plain_text_is_refused(tmp_path: Path) -> None:
    """It does not say which turns are the assistant's."""
    file = tmp_path / "talk.txt"
    file.write_text("User: Hi\nAssistant: Hello.\n")
    with pytest.raises(
        DataError, match=r"talk\.txt is plain text: it is no conversation: give messages"
    ):
        conversations.read([write(tmp_path / "x.jsonl", *split()), str(file)])


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ('{"role": "user", "content": "\\ud83d"}', "it has half a character"),
        (
            '{"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"x": NaN}}]}',
            r"x\.jsonl:1: .*",
        ),
    ],
)
def test_what_json_can_write_and_a_model_cannot_read_is_refused(
    tmp_path: Path, turn: str, message: str
) -> None:
    """Half of a surrogate pair, and a number that is none: by the file's line, not as a defect."""
    file = tmp_path / "x.jsonl"
    file.write_text(f'{{"messages": [{turn}, {json.dumps(ANSWER)}]}}\n', "utf-8")
    with pytest.raises(DataError, match=message):
        conversations.read([str(file)])


def test_names_of_calls_make_no_other_conversation_and_weights_no_other_slice(tmp_path: Path) -> None:
    """Equal turns are in one slice; what is learned of them may differ, and then both count."""
    rows = [
        {"messages": [QUESTION, {"role": "assistant", "tool_calls": [{**CALL, "id": id_}]}]}
        for id_ in "abc"
    ]
    turns = [QUESTION, ANSWER, user("And now?"), ANSWER]
    for first, last in ((0, 1), (1, 0)):
        weighed = [turns[0], {**turns[1], "weight": first}, turns[2], {**turns[3], "weight": last}]
        rows.append({"messages": weighed})
    rows += [{"messages": [user(place), ANSWER], "slice": place} for place in SLICES]
    file = tmp_path / "x.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    talks, notes = conversations.read([str(file)])
    assert len(talks) == 3 + len(SLICES)
    assert talks[1].slice == talks[2].slice
    assert notes == ["equal conversations count once: 2 left out."]


def test_earlier_forms_of_calls_are_read() -> None:
    """OpenAI's `function_call`, and several calls in a turn of ShareGPT, whose weight stays."""
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    turn = {"role": "assistant", "content": None, "function_call": function}
    messages, tools = conversations.conversation(
        {"messages": [QUESTION, turn], "functions": [{"name": "weather"}]}
    )
    assert tools == [{"type": "function", "function": {"name": "weather"}}]
    (_, earlier) = messages
    assert earlier == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    two = json.dumps([function, function])
    shared = {"from": "function_call", "value": two, "weight": 0}
    rows = [{"from": "human", "value": "?"}, shared, {"from": "gpt", "value": "Red."}]
    assert messages_of({"conversations": rows})[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [CALL, CALL],
        "weight": 0,
    }


def test_a_result_may_be_empty() -> None:
    row = {"messages": [QUESTION, {"role": "tool", "content": ""}, ANSWER]}
    assert messages_of(row)[1] == {"role": "tool", "content": ""}


def test_thoughts_of_a_turn_stay() -> None:
    """Templates of thinking models write them."""
    row = {"messages": [QUESTION, {**ANSWER, "reasoning_content": "Look."}]}
    assert messages_of(row)[1]["reasoning_content"] == "Look."
