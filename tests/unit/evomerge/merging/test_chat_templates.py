"""Templates by mergekit's names render as their models document; one that cannot stop is named."""

from __future__ import annotations

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent_forge.evomerge.mergekit.model_folder import NAMED, chosen, stop_warning
from agent_forge.runs.errors import ConfigError

TALK = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "U"},
    {"role": "assistant", "content": "A"},
    {"role": "user", "content": "V"},
]
#: What each model's documentation shows for this talk.
WRITTEN = {
    "alpaca": (
        "S\n\n### Instruction:\nU\n\n### Response:\nA</s>\n\n### Instruction:\nV\n\n### Response:\n"
    ),
    "chatml": (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
        "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"
    ),
    "exaone": (
        "[|system|]S[|endofturn|]\n[|user|]U\n[|assistant|]A[|endofturn|]\n[|user|]V\n[|assistant|]"
    ),
    "llama3": (
        "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "mistral": "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]",
}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_template_writes_its_model_s_format(name: str) -> None:
    """Rendered as transformers renders: blocks take their line's end with them."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(chosen(name, []) or "")
    text = template.render(messages=TALK, add_generation_prompt=True, bos_token="<s>", eos_token="</s>")
    assert text == WRITTEN[name]


def test_another_word_is_no_template() -> None:
    with pytest.raises(ConfigError, match=r"give auto, alpaca, chatml, exaone, llama3, mistral, a "):
        chosen("vicuna", [])


IDS = {"<|endoftext|>": 0, "<|im_start|>": 5, "<|im_end|>": 6}


def test_a_template_that_writes_no_token_at_which_the_model_stops_is_named() -> None:
    """A chat model's template beside the end token of a base: its replies go on for ever."""
    told = stop_warning(NAMED["chatml"], IDS, {}, [{"eos_token_id": 0}, {}])
    assert told is not None
    assert "does not write <|endoftext|>, at which the result stops (eos_token_id 0)" in told
    assert told.endswith("; the template writes <|im_start|> (5), <|im_end|> (6).")
    unknown = stop_warning(NAMED["llama3"], IDS, {}, [{"eos_token_id": [0]}])
    assert unknown is not None
    assert "<|eot_id|> (unknown)" in unknown


def test_a_template_that_can_stop_is_not() -> None:
    """By config.json or generation_config.json, by the token's name or the template's variable."""
    assert (
        stop_warning(NAMED["chatml"], IDS, {}, [{"eos_token_id": 0}, {"eos_token_id": [0, 6]}]) is None
    )
    settings = {"eos_token": {"content": "<|endoftext|>"}}
    assert stop_warning(NAMED["alpaca"], IDS, settings, [{"eos_token_id": 0}]) is None
    assert stop_warning(NAMED["alpaca"], IDS, {}, [{"eos_token_id": 0}]) is not None
    assert stop_warning(NAMED["chatml"], IDS, {}, [{}]) is None, "nothing is known of its end"
