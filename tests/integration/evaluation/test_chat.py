"""Replies of tiny models: as transformers writes them, and by llama.cpp the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.evaluation.chat import resident
from agent_forge.evaluation.chat.conversation import Message, ReplySettings
from agent_forge.evaluation.chat.llama_cpp import LlamaCppSpeaker
from agent_forge.evaluation.chat.resident import ResidentSpeaker
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.home import Home
from agent_forge.worker.exports import gguf_export
from testing.models.toys import Toys

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'nobody' %}"
    "{{ raise_exception('no such role') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
ASKED: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Wie heißt du? 😀"},
]


@pytest.fixture(scope="module")
def chatty(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama model with large random weights, the toys' tokenizer, and a chat template."""
    place = tmp_path_factory.mktemp("models") / "chatty"
    shutil.copytree(toys.base, place)
    (place / "model.safetensors").unlink()
    told: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **told))
    model.float().save_pretrained(place)
    (place / "chat_template.jinja").write_text(TEMPLATE)
    return place


def speaker(folder: Path) -> ResidentSpeaker:
    return ResidentSpeaker(ModelReference(name=folder.name, path=str(folder)), "cpu")


def expected(folder: Path, messages: list[Message], limit: int) -> str:
    """The greedy reply by transformers alone: its template, no cache."""
    tokenizer = load_tokenizer(str(folder))
    text = tokenizer.apply_chat_template(
        [dict(m) for m in messages], tokenize=False, add_generation_prompt=True
    )
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = tokenizer.encode(text, add_special_tokens=False)
    start = len(ids)
    with torch.no_grad():
        for _ in range(limit):
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == tokenizer.eos_token_id:
                return tokenizer.decode(ids[start:-1])
    return tokenizer.decode(ids[start:])


def test_a_greedy_reply_is_that_of_transformers(chatty: Path) -> None:
    model = speaker(chatty)
    reply = model.reply(model.ids(ASKED), ReplySettings(max_tokens=24))
    assert "".join(reply) == reply.text == expected(chatty, ASKED, 24)
    assert reply.text
    assert (reply.tokens, reply.reason) == (24, "length")


def test_llama_cpp_replies_the_same_from_our_file(chatty: Path, tmp_path: Path) -> None:
    """Template, ids and greedy tokens; and without a template it continues texts, as we do."""
    home, file = Home(tmp_path / "home"), tmp_path / "chatty.gguf"
    gguf_export.export(home, str(chatty), file, "F32", lambda text: None)
    model, there = speaker(chatty), LlamaCppSpeaker(file)
    assert there.templated
    assert there.positions == model.positions == 256
    assert there.ids(ASKED) == model.ids(ASKED)
    reply = there.reply(there.ids(ASKED), ReplySettings(max_tokens=24))
    assert "".join(reply) == expected(chatty, ASKED, 24)
    assert (reply.tokens, reply.reason) == (24, "length")
    drawn = ReplySettings(max_tokens=24, temperature=1.0, top_p=0.9, seed=4)
    once, again = (there.reply(there.ids(ASKED), drawn) for _ in range(2))
    assert "".join(once) == "".join(again)
    full = there.reply([5] * 250, ReplySettings())
    list(full)
    assert (full.tokens, full.reason) == (6, "context")
    with pytest.raises(ConfigError, match=r"refuses the conversation .*no such role"):
        there.ids([{"role": "nobody", "content": "x"}])


def test_a_file_without_a_template_continues_texts(toys: Toys, tmp_path: Path) -> None:
    """llama.cpp would make up a template for it."""
    file = tmp_path / "base.gguf"
    gguf_export.export(Home(tmp_path / "home"), str(toys.base), file, "F32", lambda text: None)
    there, here = LlamaCppSpeaker(file), speaker(toys.base)
    assert not there.templated
    assert not here.templated
    text: list[Message] = [{"role": "user", "content": "2 + 2 ="}]
    assert there.ids(text) == here.ids(text)


def test_a_cut_file_is_an_error_and_not_the_end_of_this_process(chatty: Path, tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    gguf_export.export(Home(tmp_path / "home"), str(chatty), file, "F32", lambda text: None)
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(SourceError, match=r"cut\.gguf cannot be read: tensor .* would end at byte"):
        LlamaCppSpeaker(file)
    file.write_bytes(b"no such file")
    with pytest.raises(SourceError, match="is no GGUF file"):
        LlamaCppSpeaker(file)


def test_a_drawn_reply_is_a_function_of_the_seed(chatty: Path) -> None:
    model = speaker(chatty)
    texts = [
        "".join(model.reply(model.ids(ASKED), ReplySettings(20, temperature=1.0, seed=seed)))
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]
    greedy = ReplySettings(20, temperature=1.0, top_p=1e-9, seed=7)  # the likeliest token alone is left
    assert "".join(model.reply(model.ids(ASKED), greedy)) == expected(chatty, ASKED, 20)


def test_a_reply_stops_when_asked_and_the_next_one_is_as_if_it_had_not(chatty: Path) -> None:
    model = speaker(chatty)
    whole = expected(chatty, ASKED, 24)
    reply = model.reply(model.ids(ASKED), ReplySettings(max_tokens=200))
    first = next(reply)
    reply.stop()
    rest = "".join(reply)
    assert reply.reason == "stopped"
    assert reply.tokens < 200
    assert whole.startswith((first + rest)[: len(whole)])
    assert "".join(model.reply(model.ids(ASKED), ReplySettings(max_tokens=24))) == whole


def test_the_models_own_settings_are_followed(chatty: Path, tmp_path: Path) -> None:
    """Sampling of generation_config.json only if it says so, its end tokens always."""
    folder = Path(shutil.copytree(chatty, tmp_path / "model"))
    model = speaker(folder)
    whole = list(load_tokenizer(str(folder)).encode(expected(folder, ASKED, 24)))
    told = {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "eos_token_id": [0, whole[-1]]}
    file = folder / resident.FILE
    file.write_text(json.dumps(told))
    assert resident.of_folder(folder).words == "greedy"
    ended = speaker(folder).reply(model.ids(ASKED), ReplySettings(max_tokens=200))
    list(ended)
    assert ended.reason == "end"
    assert ended.tokens < 24
    file.write_text(json.dumps({**told, "do_sample": True, "min_p": 0.1, "repetition_penalty": 2}))
    choice = resident.of_folder(folder)
    assert choice.words == "temperature 0.5, top-k 5, top-p 0.9, min-p 0.1"
    assert choice.of(ReplySettings(temperature=0.0)).words == "greedy"
    assert choice.of(ReplySettings(temperature=2.0, top_p=0.3)).top_p == 0.3
    assert resident.SamplingRule().of(ReplySettings(top_p=0.5)).temperature == 1
    drawn = speaker(folder).reply(model.ids(ASKED), ReplySettings(max_tokens=10, seed=1))
    assert "".join(drawn)


@pytest.mark.parametrize(
    ("key", "value"),
    [("temperature", -1), ("top_p", 2), ("top_k", "many"), ("min_p", True), ("eos_token_id", "x")],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    (tmp_path / resident.FILE).write_text(json.dumps({"do_sample": True, key: value}))
    with pytest.raises(SourceError, match=rf"generation_config\.json: {key}"):
        resident.of_folder(tmp_path)


def test_a_template_that_refuses_a_conversation_is_named(chatty: Path) -> None:
    with pytest.raises(ConfigError, match="template of chatty refuses the conversation"):
        speaker(chatty).ids([{"role": "nobody", "content": "x"}])
