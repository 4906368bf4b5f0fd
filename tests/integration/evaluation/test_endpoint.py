"""A model behind a server: the same numbers as in this process, and clear errors."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.evaluation.backends.openai_backend import Endpoint
from agent_forge.evaluation.data import packing
from agent_forge.evaluation.data.items import Item, from_rows
from agent_forge.evaluation.measures.perplexity import score_questions, score_windows
from agent_forge.runs.errors import EndpointError
from testing.models.toy_tensors import question, texts
from testing.services.endpoint import completions, serving

NAME = "tiny"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The base, served."""
    with serving(completions(folder / "base", NAME)) as found:
        yield found


def problem(number: int, prompt: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"p{number}",
        "domain": "d",
        "slice": "test",
        "prompt": prompt,
        "check": {"kind": "exact", "answer": "x"},
        "max_tokens": 10,
        **fields,
    }


def test_windows_questions_and_replies_are_those_of_the_model(server, resident, tokenizer) -> None:
    url, seen = server
    prompts = ["one", "2 + 2 =", "a longer prompt than these"]
    items: list[Item] = [*texts("some text " * 30), *(question(i, id=f"q{i}") for i in (0, 1))]
    items += from_rows([problem(i, prompt) for i, prompt in enumerate(prompts)])
    packed = packing.pack(items, tokenizer, 32)["test"]["d"]
    likely = [5]
    for _ in range(20):
        likely.append(int(resident.logits(torch.tensor([likely]))[0, -1].argmax()))
    packed.windows.append(np.asarray(likely))
    endpoint = Endpoint(url, NAME, positions=64, key="secret")
    theirs, ours = score_windows(endpoint, packed.windows), score_windows(resident, packed.windows)
    assert theirs[0] == pytest.approx(ours[0], rel=1e-5)
    assert theirs[1:] == ours[1:]
    assert ours[2][-1] == 20
    assert not all(ours[2])
    assert score_questions(endpoint, packed.questions) == score_questions(resident, packed.questions)
    told = endpoint.replies(packed.problems, tokenizer)
    assert told == resident.replies(packed.problems, tokenizer)
    assert any(told)
    endpoint.close()
    assert {request["path"] for request in seen} == {"/v1/completions"}
    assert {request["headers"]["Authorization"] for request in seen} == {"Bearer secret"}
    assert all(request["body"]["temperature"] == 0 for request in seen)


def test_replies_end_before_any_of_many_stops(server, resident, tokenizer) -> None:
    """A server takes four; the others are looked for here."""
    (whole,) = resident.replies(
        packing.pack(from_rows([problem(0, "one")]), tokenizer, 32)["test"]["d"].problems, tokenizer
    )
    stops = ["never", "Never", "nEver", "neVer", whole[2:4]]
    given = from_rows([problem(0, "one", stop=stops)])
    problems = packing.pack(given, tokenizer, 32)["test"]["d"].problems
    assert Endpoint(server[0], NAME).replies(problems, tokenizer) == [whole[: whole.find(stops[-1])]]


GOOD = {"text": "", "index": 0}
LOGPROBS = {"token_logprobs": [None, -1.0, -2.0], "top_logprobs": [None, {"a": -0.5}, {"b": -2.0}]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "what"),
    [
        (404, {"error": {"message": "no such model"}}, "answered 404: .*no such model"),
        (200, "<html>", "is not that of a completion"),
        (200, [1], "is not that of a completion"),
        (200, "[" * 100_000, "is not that of a completion"),
        (200, {"choices": [{**GOOD, "index": "1e999"}]}, "is not that of a completion"),
        (200, {"choices": [None]}, "is not that of a completion"),
        (200, {"choices": []}, "lacks a choice for 1 prompts"),
        (200, {"choices": [{**GOOD, "index": 1}]}, "lacks a choice for 1 prompts"),
        (200, {"choices": [{**GOOD, "logprobs": [1]}]}, "is not that of a completion"),
        (200, {"choices": [{**GOOD, "logprobs": {**LOGPROBS, "token_logprobs": 5}}]}, "is not"),
        (200, {"choices": [{**GOOD, "logprobs": {**LOGPROBS, "top_logprobs": [None] * 3}}]}, "is not"),
        (
            200,
            {"choices": [{**GOOD, "logprobs": {**LOGPROBS, "top_logprobs": [None, {}, {"a": None}]}}]},
            "is not that of a completion",
        ),
        (
            200,
            {"choices": [{**GOOD, "logprobs": {**LOGPROBS, "token_logprobs": [None, -1.0, 5.0]}}]},
            "above 0, or no number",
        ),
        (
            200,
            '{"choices": [{"index": 0, "logprobs": {"token_logprobs": [null, -1.0, NaN], '
            '"top_logprobs": [null, {"a": -1.0}, {"a": -1.0}]}}]}',
            "above 0, or no number",
        ),
        (200, {"choices": [GOOD]}, "gives no log-probabilities of prompts"),
        (200, {"choices": [{**GOOD, "logprobs": {"token_logprobs": [None, -1.0]}}]}, "gives no"),
        (
            200,
            {"choices": [{**GOOD, "logprobs": {k: v[:2] for k, v in LOGPROBS.items()}}]},
            "a prompt of 3 tokens came back with 2",
        ),
        (
            200,
            {"choices": [{**GOOD, "logprobs": {**LOGPROBS, "token_logprobs": [None, None, -1.0]}}]},
            "a token of a prompt has no log-probability",
        ),
    ],
)
def test_what_a_server_does_wrong_is_said(status: int, body: Any, what: str) -> None:
    with serving(lambda asked: (status, body)) as (url, _):
        with pytest.raises(EndpointError, match=what) as error:
            Endpoint(url, NAME).losses([np.asarray([1, 2, 3])])
        assert url in str(error.value)


def test_what_is_right_is_read() -> None:
    """The token that is generated besides is dropped; the most likely one is known by its value."""
    longer = {
        "token_logprobs": [*LOGPROBS["token_logprobs"], -3.0],
        "top_logprobs": [*LOGPROBS["top_logprobs"], {"c": -3.0}],
    }
    with serving(lambda asked: (200, {"choices": [{**GOOD, "logprobs": longer}]})) as (url, _):
        ((losses, best),) = Endpoint(url + "/", NAME).losses([np.asarray([1, 2, 3])])
    assert losses.tolist() == [1.0, 2.0]
    assert best.tolist() == [False, True]


@pytest.mark.parametrize("url", ["nonsense", "http://" + "a" * 80 + "/v1", "http://[/v1"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(EndpointError, match="cannot be reached"):
        Endpoint(url, NAME).losses([np.asarray([1, 2])])


def test_a_key_is_never_shown() -> None:
    with pytest.raises(EndpointError, match="has characters that no key has") as error:
        Endpoint("http://localhost/v1", NAME, key="secrét")
    assert "secr" not in str(error.value)
    with serving(lambda asked: (500, "")) as (url, seen):
        with pytest.raises(EndpointError, match="answered 500"):
            Endpoint(url, NAME, key=" secret\n").losses([np.asarray([1, 2])])
    assert seen[0]["headers"]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [301, 307])
def test_a_key_goes_to_no_redirect(status: int) -> None:
    """Neither do the items: a server could name any other as the place to ask."""
    with (
        serving(lambda asked: (200, {})) as (other, elsewhere),
        serving(lambda asked: (status, ""), f"{other}/completions") as (url, seen),
    ):
        with pytest.raises(EndpointError, match=f"answered {status}"):
            Endpoint(url, NAME, key="secret").losses([np.asarray([1, 2])])
    assert seen[0]["headers"]["Authorization"] == "Bearer secret"
    assert elsewhere == []


@pytest.mark.slow
@pytest.mark.parametrize("password", ["PASSWORD", "PASS%2FWORD", "PASS/WORD"])
def test_a_password_in_the_address_is_sent_and_never_shown(
    password: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors are kept in logs and shown to others; servers and the client's log repeat addresses."""
    caplog.set_level("DEBUG")

    def repeats(asked: dict[str, Any]) -> tuple[int, Any]:
        return 401, f"no: {seen[-1]['headers']['Authorization']}"

    with serving(repeats) as (url, seen):
        address = url.replace("://", f"://ada:{password}@")
        with pytest.raises(EndpointError, match="answered 401: no: ") as error:
            Endpoint(address, NAME).losses([np.asarray([1, 2])])
        with pytest.raises(EndpointError) as keyed:
            Endpoint(url, NAME, key="KEY-PASS").losses([np.asarray([1, 2])])
    decoded = f"ada:{password.replace('%2F', '/')}".encode()
    sent = base64.b64encode(decoded).decode()
    assert seen[0]["headers"]["Authorization"] == f"Basic {sent}"
    assert url in str(error.value)
    with pytest.raises(EndpointError, match="cannot be reached") as gone:
        Endpoint(f"http://ada:{password}@[/v1", NAME).losses([np.asarray([1, 2])])
    for said in (str(error.value), str(keyed.value), str(gone.value), caplog.text):
        assert not any(secret in said for secret in ("PASSWORD", "PASS%2F", "PASS/", sent, "KEY-"))


def test_an_address_that_may_mean_another_host_is_refused_and_not_shown() -> None:
    """A mistyped port was read as a password, and the items went to the host `th`."""
    with pytest.raises(EndpointError, match="its port is no number") as error:
        Endpoint("http://host:80a/path@th", NAME)
    assert "80a" not in str(error.value)


def test_a_server_that_is_not_there() -> None:
    with serving(lambda asked: (200, {})) as (url, _):
        pass
    with pytest.raises(EndpointError, match="cannot be reached"):
        Endpoint(url, NAME).losses([np.asarray([1, 2])])
