"""Conversations by chat templates of several families: which tokens the assistant learns to write.

The expected texts are marked by hand: «…» is around what is learned.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agent_forge.evaluation.data.conversations import Conversation
from agent_forge.evaluation.data.slices import SLICES, Slice
from agent_forge.evaluation.training_text import turns
from agent_forge.evaluation.training_text.turns import Example, Template
from agent_forge.runs.errors import DataError
from agent_forge.weights.training.windows import Ids, unpack_items

Turns = Sequence[dict[str, object]]


@functools.cache
def tokenizer(eos: str, *special: str) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE, in which tokens are longer than letters; `eos` has the id 0."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    core.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[eos, *special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(
        ["What is it? It is red.\n\nHello, user and assistant: the model\n"] * 9, trainer
    )
    bos = special[0] if special else eos
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=eos, bos_token=bos)


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def assistant(text: str, **further: object) -> dict[str, object]:
    return {"role": "assistant", "content": text, **further}


def system(text: str) -> dict[str, object]:
    return {"role": "system", "content": text}


def conversation(messages: Turns, tools: Turns = (), slice_: Slice = "train") -> Conversation:
    return Conversation(f"talk-{len(messages)}", "chat", slice_, messages, tools)


def marked(example: Example, template: Template) -> str:
    """Return an example's text with «…» around what is trained."""
    parts = example.parts(template.tokenizer)
    return "".join(f"«{text}»" if trained else text for text, trained in parts)


def marked_items(stream: Ids, template: Template) -> list[str]:
    """Return the texts of a stream's items with «…» around ids below zero."""
    texts = list[str]()
    for item in unpack_items(stream):
        runs = [(learned, list(ids)) for learned, ids in itertools.groupby(item, lambda id_: id_ < 0)]
        parts = [
            (learned, template.tokenizer.decode([-1 - i if learned else i for i in ids]))
            for learned, ids in runs
        ]
        texts.append("".join(f"«{text}»" if learned else text for learned, text in parts))
    return texts


def examples(template: Template, messages: Turns, tools: Turns = ()) -> list[str]:
    """Return the marked texts of a conversation's examples."""
    talk = conversation(messages, tools)
    return [marked(example, template) for example in template.examples(talk)]


# ---- families of templates -----------------------------------------------------------------------

CHATML = """
{%- if not messages or messages[0].role != 'system' -%}
{{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' -}}
{%- endif -%}
{%- for turn in messages -%}
{{- '<|im_start|>' ~ turn.role ~ '\\n' ~ turn.content ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

LLAMA = """
{{- bos_token -}}
{%- for turn in messages -%}
{{- '<|start_header_id|>' ~ turn.role ~ '<|end_header_id|>\\n\\n' -}}
{{- turn.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
{%- endif -%}
"""

# The system prompt is written into the first question; a reply has no beginning of its own.
MISTRAL = """
{%- set talk = namespace(system='') -%}
{{- bos_token -}}
{%- for turn in messages -%}
{%- if turn.role == 'system' -%}{%- set talk.system = turn.content ~ '\\n\\n' -%}
{%- elif turn.role == 'user' -%}
{{- '[INST] ' ~ talk.system ~ turn.content ~ ' [/INST]' -}}{%- set talk.system = '' -%}
{%- else -%}{{- ' ' ~ turn.content ~ eos_token -}}
{%- endif -%}
{%- endfor -%}
"""

# Later versions of it: the system prompt is in the last question, wherever that is.
MISTRAL_LAST = """
{%- set system = messages[0].content if messages[0].role == 'system' else none -%}
{%- set talk = messages[1:] if system else messages -%}
{%- set questions = talk | selectattr('role', 'equalto', 'user') | list -%}
{{- bos_token -}}
{%- for turn in talk -%}
{%- if turn.role == 'user' -%}
{{- '[INST] ' ~ (system ~ '\\n\\n' if system and turn == questions[-1] else '') -}}
{{- turn.content ~ ' [/INST]' -}}
{%- else -%}{{- ' ' ~ turn.content ~ eos_token -}}
{%- endif -%}
{%- endfor -%}
"""

GEMMA = """
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- for turn in messages -%}
{%- if (turn.role == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('Roles must alternate user/assistant') -}}
{%- endif -%}
{%- set role = 'model' if turn.role == 'assistant' else turn.role -%}
{{- '<start_of_turn>' ~ role ~ '\\n' ~ turn.content | trim ~ '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
"""

# Thoughts stay only after the last question.
QWEN = """
{%- set last = namespace(question=-1) -%}
{%- for turn in messages if turn.role == 'user' -%}{%- set last.question = turn -%}{%- endfor -%}
{%- set reached = namespace(last=false) -%}
{%- for turn in messages -%}
{%- if turn == last.question -%}{%- set reached.last = true -%}{%- endif -%}
{{- '<|im_start|>' ~ turn.role ~ '\\n' -}}
{%- if turn.role == 'assistant' and not reached.last -%}
{{- turn.content.split('</think>')[-1].lstrip('\\n') -}}
{%- else -%}{{- turn.content -}}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


class Family(NamedTuple):
    """A chat template and the special tokens of its models."""

    text: str
    #: The tokenizer's special tokens, the one that ends a text first.
    special: tuple[str, ...]
    #: Texts of the tokens that end a reply.
    ends: tuple[str, ...]

    @property
    def template(self) -> Template:
        return Template(self.text, tokenizer(*self.special), "toy", self.ends)


CHATML_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|im_start|>", "<think>", "</think>")
LLAMA_TOKENS = (
    "<|eot_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
)  # fmt: skip
FAMILIES = {
    "ChatML": Family(CHATML, CHATML_TOKENS, ("<|im_end|>", "<|endoftext|>")),
    "Llama": Family(LLAMA, LLAMA_TOKENS, ("<|end_of_text|>", "<|eot_id|>")),
    "Mistral": Family(MISTRAL, ("</s>", "<s>"), ("</s>",)),
    "Mistral's last": Family(MISTRAL_LAST, ("</s>", "<s>"), ("</s>",)),
    "Gemma": Family(
        GEMMA, ("<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"), ("<eos>", "<end_of_turn>")
    ),
    "Qwen": Family(QWEN, CHATML_TOKENS, ("<|im_end|>", "<|endoftext|>")),
    "own": Family(turns.own(), CHATML_TOKENS, ("<|im_end|>",)),
}

TWO = [user("What is it?"), assistant("It is red."), user("And the model?"), assistant("Hello, 😀!")]
PROMPTED = [system("Be short."), *TWO]
THOUGHTS = [
    user("1+1?"),
    assistant("<think>\none and one\n</think>\n\nTwo."),
    user("Sure?"),
    assistant("Yes."),
    user("2+2?"),
    assistant("<think>\ntwo and two\n</think>\n\nFour."),
]

CASES: list[tuple[str, list[dict[str, object]], list[str]]] = [
    (
        "ChatML",
        TWO,
        [
            "<|im_start|>system\nYou are helpful.<|im_end|>\n"
            "<|im_start|>user\nWhat is it?<|im_end|>\n"
            "<|im_start|>assistant\n«It is red.<|im_end|>»\n"
            "<|im_start|>user\nAnd the model?<|im_end|>\n"
            "<|im_start|>assistant\n«Hello, 😀!<|im_end|>»"
        ],
    ),
    (
        "ChatML",
        PROMPTED[:3],
        [
            "<|im_start|>system\nBe short.<|im_end|>\n"
            "<|im_start|>user\nWhat is it?<|im_end|>\n"
            "<|im_start|>assistant\n«It is red.<|im_end|>»"
        ],
    ),
    (
        "ChatML",
        [system("Be short."), assistant("Hello.")],
        ["<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>assistant\n«Hello.<|im_end|>»"],
    ),
    (
        "Llama",
        PROMPTED,
        [
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe short.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nWhat is it?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«It is red.<|eot_id|>»"
            "<|start_header_id|>user<|end_header_id|>\n\nAnd the model?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«Hello, 😀!<|eot_id|>»"
        ],
    ),
    (
        "Llama",
        [user("Go on."), assistant("First."), assistant(" Then. \n")],
        [
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nGo on.<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«First.<|eot_id|>»"
            "<|start_header_id|>assistant<|end_header_id|>\n\n«Then.<|eot_id|>»"
        ],
    ),
    (
        "Mistral",
        PROMPTED,
        [
            "<s>[INST] Be short.\n\nWhat is it? [/INST]« It is red.</s>»"
            "[INST] And the model? [/INST]« Hello, 😀!</s>»"
        ],
    ),
    (
        "Mistral's last",
        PROMPTED,
        [
            "<s>[INST] What is it? [/INST] It is red.</s>"
            "[INST] Be short.\n\nAnd the model? [/INST]« Hello, 😀!</s>»",
            "<s>[INST] Be short.\n\nWhat is it? [/INST]« It is red.</s>»",
        ],
    ),
    (
        "Gemma",
        TWO,
        [
            "<bos><start_of_turn>user\nWhat is it?<end_of_turn>\n"
            "<start_of_turn>model\n«It is red.<end_of_turn>»\n"
            "<start_of_turn>user\nAnd the model?<end_of_turn>\n"
            "<start_of_turn>model\n«Hello, 😀!<end_of_turn>»"
        ],
    ),
    (
        "Qwen",
        THOUGHTS,
        [
            "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>\n"
            "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n«Yes.<|im_end|>»\n"
            "<|im_start|>user\n2+2?<|im_end|>\n"
            "<|im_start|>assistant\n«<think>\ntwo and two\n</think>\n\nFour.<|im_end|>»",
            "<|im_start|>user\n1+1?<|im_end|>\n"
            "<|im_start|>assistant\n«<think>\none and one\n</think>\n\nTwo.<|im_end|>»",
        ],
    ),
    (
        "own",
        PROMPTED,
        [
            "<|im_start|>system\nBe short.<|im_end|>\n"
            "<|im_start|>user\nWhat is it?<|im_end|>\n"
            "<|im_start|>assistant\n«It is red.<|im_end|>»\n"
            "<|im_start|>user\nAnd the model?<|im_end|>\n"
            "<|im_start|>assistant\n«Hello, 😀!<|im_end|>»"
        ],
    ),
    ("own", [assistant("Hello.")], ["<|im_start|>assistant\n«Hello.<|im_end|>»"]),
]
each_case = pytest.mark.parametrize(
    ("family", "messages", "expected"),
    CASES,
    ids=[f"{name}-{len(messages)}" for name, messages, _ in CASES],
)


@each_case
def test_replies_are_marked_up_to_their_end_tokens(
    family: str, messages: Turns, expected: list[str]
) -> None:
    """A reply that a template later writes in another way is an example of its own."""
    assert examples(FAMILIES[family].template, messages) == expected


@each_case
def test_a_reply_is_learned_after_exactly_what_the_model_reads(
    family: str, messages: Turns, expected: list[str]
) -> None:
    """The model would learn to continue tokens that it never reads, if one of them differed."""
    template = FAMILIES[family].template
    toy = cast("Any", template.tokenizer)
    prompts = []
    for place, turn in enumerate(messages):
        if turn["role"] == "assistant":
            prompt = template.rendered(messages[:place], (), True)
            encoded = toy.encode(prompt, add_special_tokens=False)
            if place:  # transformers takes no empty conversation
                arguments = {"chat_template": template.text, "add_generation_prompt": True}
                reference = toy.apply_chat_template(messages[:place], tokenize=False, **arguments)
                assert prompt == reference
            prompts.append(encoded)
    contexts = []
    for example in template.examples(conversation(messages)):
        trained = [False, *example.trained.tolist()]
        begins = [n for n, pair in enumerate(itertools.pairwise(trained)) if pair == (False, True)]
        contexts += [example.ids[:begin].tolist() for begin in begins]
    assert sorted(contexts) == sorted(prompts)


def test_a_turn_of_weight_0_is_read_and_not_learned() -> None:
    """A conversation may hold replies that are wrong."""
    messages = [user("1+1?"), assistant("3", weight=0), user("Sure?"), assistant("No: 2", weight=1)]
    template = FAMILIES["Mistral"].template
    assert examples(template, messages) == [
        "<s>[INST] 1+1? [/INST] 3</s>[INST] Sure? [/INST]« No: 2</s>»"
    ]
    assert examples(template, [*messages[:3], {**messages[3], "weight": 0}]) == []


def test_nothing_after_the_last_reply_is_in_an_example() -> None:
    """Tokens behind it would take place in a window, and teach nothing."""
    template = FAMILIES["Mistral"].template
    assert examples(template, [*TWO[:2], user("Thanks.")]) == examples(template, TWO[:2])


def test_a_conversation_without_a_reply_has_no_example() -> None:
    """A system message alone has nothing that the assistant writes."""
    for messages in ([system("Be short.")], [system("Be short."), user("Hi")]):
        assert examples(FAMILIES["own"].template, messages) == []


def test_a_reply_without_an_end_token_is_learned_whole() -> None:
    """A template may end turns by letters: they are learned, or the model would never stop."""
    text = "{% for turn in messages %}{{ turn.role }}:{{ turn.content }}\n\n{% endfor %}"
    text += "{% if add_generation_prompt %}assistant:{% endif %}"
    template = Template(text, tokenizer("</s>", "<s>"), "toy", ("</s>",))
    assert examples(template, [user("Hi"), assistant("Hello.")]) == [
        "user:Hi\n\nassistant:«Hello.\n\n»"
    ]


def test_the_first_token_is_never_learned() -> None:
    """No token stands before it, from which a model could predict it."""
    text = "{% for turn in messages %}{{ turn.content }}{{ eos_token }}{% endfor %}"
    template = Template(text, tokenizer("</s>", "<s>"), "toy", ("</s>",))
    (example,) = template.examples(conversation([assistant("xyz")]))
    assert marked(example, template) == "x«yz</s>»"


def test_a_stream_has_trained_tokens_below_zero() -> None:
    """The sign marks what is learned, also for id 0, which ends a reply here."""
    template = FAMILIES["Mistral"].template
    (example,) = template.examples(conversation(TWO[:2]))
    decoded = [template.tokenizer.decode([-1 - id_]) for id_ in example.stream[example.stream < 0]]
    assert "".join(decoded) == " It is red.</s>"
    assert example.stream[-1] == -1
    assert example.stream.dtype == np.int32
    np.testing.assert_array_equal(
        np.where(example.trained, -1 - example.stream, example.stream), example.ids
    )


# ---- templates that do not fit -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "reason"),
    [(PROMPTED, "System role not supported"), ([*TWO, assistant("More.")], "Roles must alternate")],
)
def test_a_template_that_refuses_a_conversation_is_an_error(messages: Turns, reason: str) -> None:
    """The message names the conversation, the model and the template's reason."""
    with pytest.raises(DataError, match=f"talk-5: the chat template of toy refuses it .*{reason}"):
        examples(FAMILIES["Gemma"].template, messages)


def test_a_template_that_begins_replies_as_it_does_not_write_them_is_an_error() -> None:
    """The beginning that such a model reads before it replies would never be trained."""
    begin = "{{- '<|im_start|>assistant\\n' -}}"
    opening = QWEN.replace(begin, begin.replace("assistant\\n", "assistant\\n<think>\\n"))
    assert opening != QWEN
    template = Template(opening, tokenizer(*CHATML_TOKENS), "toy", ("<|im_end|>",))
    with pytest.raises(DataError, match=r"talk-4: .* toy begins a reply with .*<think>.* message 1 "):
        examples(template, TWO)
    reply = assistant("<think>\nno idea\n</think>\n\nRed.")
    assert examples(template, [user("What?"), reply]) == [
        "<|im_start|>user\nWhat?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n«no idea\n</think>\n\nRed.<|im_end|>»"
    ]


# ---- which template ------------------------------------------------------------------------------

# Functions, calls and results in words that no other template has.
WITH_TOOLS = (
    "{% for tool in tools or [] %}FUNCTION {{ tool | tojson }}\n{% endfor %}"
    "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}"
    "{% for call in turn.tool_calls or [] %}CALL {{ call.function | tojson }}{% endfor %}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
REFUSING = (
    "{% for turn in messages %}"
    "{% if turn.role not in ('user', 'assistant') %}{{ raise_exception('unknown role') }}{% endif %}"
    "{{ turn.content }}{{ eos_token }}{% endfor %}"
)
SCHEMA = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOLS = [{"type": "function", "function": SCHEMA}]


def call(city: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": "weather", "arguments": {"city": city}}}


CALLS = [
    user("Warmer: Oslo or Åre?"),
    assistant("I look.", tool_calls=[call("Oslo"), call("Åre")]),
    {"role": "tool", "content": "8", "name": "weather"},
    {"role": "tool", "content": "2", "name": "weather"},
    assistant("Oslo."),
]


def model(template: object) -> PreTrainedTokenizerFast:
    """Return a tokenizer that has a chat template."""
    toy = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(*CHATML_TOKENS).backend_tokenizer,
        eos_token="<|im_end|>",
        bos_token="<|endoftext|>",
    )
    toy.chat_template = template  # pyright: ignore
    return toy


def choice(folder: Path, template: object, *talks: Conversation) -> Template:
    return turns.chosen(folder, cast("Any", model(template)), "toy", talks)


def test_a_model_without_template_gets_the_programs_own(tmp_path: Path) -> None:
    """Base models have none."""
    for talk in (conversation(TWO), conversation(CALLS, TOOLS)):
        template = choice(tmp_path, None, talk)
        assert template.is_own
        assert template.text == turns.own()


@pytest.mark.parametrize("text", [CHATML, REFUSING, WITH_TOOLS], ids=["ChatML", "refusing", "tools"])
def test_words_need_no_template_with_tools(tmp_path: Path, text: str) -> None:
    """A model keeps its template for conversations without functions."""
    template = choice(tmp_path, text, conversation(TWO))
    assert template.text == text
    assert not template.is_own


@pytest.mark.parametrize(
    "talk", [conversation(TWO, TOOLS), conversation(CALLS, TOOLS), conversation(CALLS)],
    ids=["tools", "calls and tools", "calls"],
)  # fmt: skip
def test_a_template_is_kept_for_functions_only_if_it_writes_them(
    tmp_path: Path, talk: Conversation
) -> None:
    """Functions that are left out silently would never be learned."""
    words = conversation(TWO)
    assert choice(tmp_path, WITH_TOOLS, words, talk).text == WITH_TOOLS
    assert choice(tmp_path, CHATML, words, talk).is_own
    assert choice(tmp_path, REFUSING, words, talk).is_own


def test_a_models_template_for_tools_is_taken_for_them(tmp_path: Path) -> None:
    """Some models have a template for words, and another for functions."""
    templates = {"default": CHATML, "tool_use": WITH_TOOLS}
    assert choice(tmp_path, templates, conversation(TWO)).text == CHATML
    assert choice(tmp_path, templates, conversation(CALLS, TOOLS)).text == WITH_TOOLS


def test_replies_end_at_every_token_that_the_models_files_name(tmp_path: Path) -> None:
    """The tokenizer's own token often ends texts, and another one turns."""
    assert choice(tmp_path, CHATML).ends == ("<|im_end|>",)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 4]}))
    assert choice(tmp_path, CHATML).ends == ("<|im_end|>", "<|im_start|>", "</think>")
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": None}))
    assert choice(tmp_path, CHATML).ends == ("<|im_end|>", "</think>")


# ---- the program's own template ------------------------------------------------------------------

FUNCTIONS = (
    "You can call functions. Their signatures, as JSON:\n"
    '<tools>\n{"name": "weather", "parameters": {"type": "object", "properties": {"city": '
    '{"type": "string"}}}}\n</tools>\n'
    'For each call write <tool_call>{"name": NAME, "arguments": {…}}</tool_call>. '
    "If no function fits, answer in words."
)
FIRST = f"<|im_start|>system\n{FUNCTIONS}<|im_end|>\n"
CALLED = (
    "<|im_start|>user\nWarmer: Oslo or Åre?<|im_end|>\n"
    "<|im_start|>assistant\n«I look.\n"
    '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>\n'
    '<tool_call>{"name": "weather", "arguments": {"city": "Åre"}}</tool_call><|im_end|>»\n'
    "<|im_start|>tool\n<tool_response>8</tool_response><|im_end|>\n"
    "<|im_start|>tool\n<tool_response>2</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n«Oslo.<|im_end|>»"
)


def test_the_own_template_writes_calls_and_results_as_hermes_does() -> None:
    """Servers such as vLLM read calls in this form; results are read and not learned."""
    template = FAMILIES["own"].template
    assert examples(template, CALLS, TOOLS) == [FIRST + CALLED]
    assert examples(template, CALLS) == [CALLED]


def test_the_own_template_writes_functions_behind_the_system_prompt() -> None:
    """There is one system turn; a turn of calls alone begins with the first call."""
    calls = assistant("", tool_calls=[call("Oslo")])
    assert examples(FAMILIES["own"].template, [system("Be short."), user("Oslo?"), calls], TOOLS) == [
        f"<|im_start|>system\nBe short.\n\n{FUNCTIONS}<|im_end|>\n"
        "<|im_start|>user\nOslo?<|im_end|>\n"
        '<|im_start|>assistant\n«<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}'
        "</tool_call><|im_end|>»"
    ]


def test_the_own_template_ends_turns_by_the_models_token() -> None:
    """A base model has a trained token for that, and none of ChatML's."""
    template = Template(turns.own(), tokenizer("</s>"), "toy", ("</s>",))
    assert examples(template, TWO[:2]) == [
        "<|im_start|>user\nWhat is it?</s>\n<|im_start|>assistant\n«It is red.</s>»"
    ]


# ---- all conversations ---------------------------------------------------------------------------


def split(*lengths: int) -> list[Conversation]:
    """Return a conversation for train, selection and test each, with replies of so many letters x."""
    places: tuple[Slice, ...] = ("train", "selection", "test")
    return [
        conversation([user("Write x."), assistant("x" * length)], slice_=place)
        for length, place in zip(lengths, places, strict=True)
    ]


def test_examples_are_streams_by_domain_and_slice() -> None:
    """A stream's items have the order of the conversations, and a sign on what is learned."""
    template = FAMILIES["Mistral"].template
    talks = [*split(1, 2, 3), Conversation("code-1", "code", "train", TWO, ())]
    rendered = turns.render(template, talks, 1000)
    assert rendered.too_long == []
    streams = rendered.streams(template)
    assert {name: marked_items(stream, template) for name, stream in streams.items()} == {
        "conversations/chat/selection": ["<s>[INST] Write x. [/INST]« xx</s>»"],
        "conversations/chat/test": ["<s>[INST] Write x. [/INST]« xxx</s>»"],
        "conversations/chat/train": ["<s>[INST] Write x. [/INST]« x</s>»"],
        "conversations/code/train": [
            "<s>[INST] What is it? [/INST]« It is red.</s>»"
            "[INST] And the model? [/INST]« Hello, 😀!</s>»"
        ],
    }


@pytest.mark.parametrize("slice_", SLICES)
def test_replies_with_functions_are_streams_to_measure(slice_: Slice) -> None:
    """Each reply is an item of its own; conversations without functions have none."""
    template = FAMILIES["own"].template
    rendered = turns.render(template, [conversation(CALLS, TOOLS, slice_), *split(1, 1, 1)], 1000)
    streams = rendered.streams(template)
    replies = {
        name: stream for name, stream in streams.items() if not name.startswith("conversations/")
    }
    if slice_ not in ("selection", "test"):
        assert replies == {}
        return
    begin, call_text, middle, words, end = re.split("[«»]", f"{FIRST}{CALLED}")
    assert not end
    assert {name: marked_items(stream, template) for name, stream in replies.items()} == {
        f"calls/chat/{slice_}": [f"{begin}«{call_text}»"],
        f"words/chat/{slice_}": [f"{begin}{call_text}{middle}«{words}»"],
    }


def test_replies_to_measure_follow_demonstrations_too() -> None:
    """Two conversations to train on, one with a call: behind the system, read and not learned."""
    template = FAMILIES["own"].template
    ask = [user("Oslo?"), assistant("", tool_calls=[call("Oslo")])]
    other = {"type": "function", "function": {**SCHEMA, "name": "tides"}}
    talks = [
        conversation([system("Be brief."), *ask], TOOLS),
        conversation([user("Hello?"), assistant("It is red.")], TOOLS),
        conversation([system("Be kind."), user("Tides?"), assistant("No.")], [other], "test"),
        *split(1, 1, 1),
    ]
    rendered = turns.render(template, talks, 1000)
    name = "prompted-words/chat/test"
    (marked_text,) = marked_items(rendered.streams(template, 2)[name], template)
    begin, _, rest = marked_text.partition("<|im_end|>\n")
    assert begin.startswith("<|im_start|>system\nBe kind.")
    assert begin.count('"name": "weather"') == begin.count('"name": "tides"') == 1
    assert rest == (
        "<|im_start|>user\nOslo?<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call><|im_end|>\n'
        "<|im_start|>user\nHello?<|im_end|>\n<|im_start|>assistant\nIt is red.<|im_end|>\n"
        "<|im_start|>user\nTides?<|im_end|>\n<|im_start|>assistant\n«No.<|im_end|>»"
    )
    (first,) = marked_items(rendered.streams(template, 1)[name], template)
    assert "Hello?" not in first
    assert name not in rendered.streams(template)


def test_no_replies_are_measured_if_their_calls_cannot_be_read() -> None:
    """A model's template may write calls in another form than the program reads."""
    template = Template(WITH_TOOLS, tokenizer(*CHATML_TOKENS), "toy", ("<|im_end|>",))
    talks = [conversation(CALLS, TOOLS, "test"), *split(1, 1, 1)]
    assert set(turns.render(template, talks, 1000).streams(template)) == {
        f"conversations/chat/{place}" for place in ("train", "selection", "test")
    }


@pytest.mark.parametrize(("family", "reads"), [("own", True), ("ChatML", False), ("Gemma", False)])
def test_calls_are_read_in_the_form_of_hermes_only(family: str, reads: bool) -> None:
    """A template that leaves calls out has none that could be read."""
    assert FAMILIES[family].template.reads_calls is reads


def test_examples_longer_than_a_window_are_left_out_and_named() -> None:
    """All tokens of an example are in a window, so that a model without more positions can read it."""
    template = FAMILIES["Mistral"].template
    talks = [*split(1, 1, 1), conversation([user("Write x."), assistant("x" * 50), user("Stop.")])]
    (longest,) = template.examples(talks[-1])
    assert turns.render(template, talks, len(longest.ids)).too_long == []
    rendered = turns.render(template, talks, len(longest.ids) - 1)
    assert [example.conversation.id for example in rendered.too_long] == ["talk-3"]
    sizes = {place: len(listed) for place, listed in rendered.examples.items()}
    assert sizes == {("chat", "train"): 1, ("chat", "selection"): 1, ("chat", "test"): 1}


@pytest.mark.parametrize(
    ("lengths", "lacking"), [((50, 1, 1), "train"), ((1, 50, 1), "selection"), ((1, 1, 50), "test")]
)
def test_a_slice_without_a_short_example_is_an_error(
    lengths: tuple[int, int, int], lacking: str
) -> None:
    """The message says which context has room for all."""
    template, talks = FAMILIES["Mistral"].template, split(*lengths)
    longest = max(len(example.ids) for talk in talks for example in template.examples(talk))
    with pytest.raises(
        DataError,
        match=f"no example left in the slice {lacking} .* 40 tokens: 1 examples are longer. "
        rf"Set context, up to {longest}\.",
    ):
        turns.render(template, talks, 40)
    assert turns.render(template, talks, longest).too_long == []


def test_a_beginning_that_joins_the_reply_is_refused() -> None:
    """A blank at its end and the reply's first word would be one token that no model reads first."""
    joining = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    joining += "{% if add_generation_prompt %}assistant: {% endif %}"
    template = Template(joining, tokenizer("</s>"), "joining", ("</s>",))
    with pytest.raises(DataError, match=r"talk-2: the tokenizer of joining joins .*'"):
        list(template.examples(conversation([user("Hello"), assistant("is it")])))


def test_an_end_token_that_the_tokenizer_lacks_ends_nothing(tmp_path: Path) -> None:
    """Its text is empty, and would be found at the beginning of every reply."""
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0, 9999]}')
    talks = [conversation([user("Hello"), assistant("It is red.")])]
    template = turns.chosen(tmp_path, tokenizer("</s>"), "model", talks)
    assert template.ends == ("</s>",)


def test_a_huge_conversation_is_refused_and_its_template_goes_on() -> None:
    """The template is not to blame: the next conversation is rendered."""
    template = FAMILIES["ChatML"].template
    with pytest.raises(DataError, match=r"talk-2: .* refuses it \(it has 17,.* characters"):
        list(template.examples(conversation([user("x" * (17 << 20)), assistant("y")])))
    assert len(list(template.examples(conversation([user("x"), assistant("y")])))) == 1


def test_made_up_conversations_have_several_requests_to_train_on_and_one_to_measure_on() -> None:
    counted = {on: Counter[int]() for on in ("train", "selection", "test")}
    for conversation in turns.read(["calls:30x3"])[0]:
        roles = [message["role"] for message in conversation.messages]
        counted[conversation.slice][roles.count("user")] += 1
    assert set(counted["train"]) <= {3, 4, 5, 6}
    assert counted["train"].total() == 30
    assert counted["selection"].keys() == counted["test"].keys() == {1}
    single = {c.id: c for c in turns.read(["calls:30"])[0] if c.slice != "train"}
    several = {c.id: c for c in turns.read(["calls:30x3"])[0] if c.slice != "train"}
    assert single == several
