"""A model on a server with an OpenAI-compatible endpoint (`/v1/completions`), such as vLLM's, that
gives log-probabilities of prompts.

Prompts are sent as token ids, so that the server's tokenizer is not used. With `echo` and `logprobs`
the answer holds, for every token of the prompt but the first, its log-probability and that of the most
likely tokens. One token is generated and dropped, because some servers want at least one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import numpy as np
from numpy.typing import NDArray

from agent_forge.evaluation.backends.backend import Losses, batches, rows_per_batch
from agent_forge.evaluation.data.packing import Ids, PackedProblem
from agent_forge.runs.errors import EndpointError
from agent_forge.runs.system.redaction import Address
from agent_forge.weights.folders.vocabularies import Tokenizer

#: Most seconds for one answer; number of attempts to connect to a server that cannot be reached.
PATIENCE, TRIES = 600.0, 3
#: Tolerance for rounding by servers: a log-probability may be this much above 0, and the most
#: likely token's may be this much below the largest one given.
ROUNDING = 1e-6


class Endpoint:
    """`Evaluator` of a model behind an OpenAI-compatible endpoint."""

    def __init__(
        self, url: str, model: str, positions: int | None = None, key: str | None = None
    ) -> None:
        """Prepare the client; no request is sent yet. Raises EndpointError.

        `url` is that of the API (`http://host:8000/v1`), `model` the name under which the server
        serves the model. `key` is sent as the bearer token; without it the URL's own user and
        password are sent. The program shows none of them.
        """
        self._address = Address(url.rstrip("/"))
        self._model, self._positions = model, positions
        self._key = key = (key or "").strip()
        if self._address.unclear:
            raise self._error("its port is no number, or a slash of its password is not written as %2F")
        if not (key.isascii() and key.isprintable()):
            raise self._error("the key in FORGE_ENDPOINT_KEY has characters that no key has")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        transport = httpx.HTTPTransport(retries=TRIES - 1)
        # The login is kept out of the URL, because the client's log and errors show the URL.
        self._client = httpx.Client(
            auth=self._address.login, headers=headers, timeout=PATIENCE, transport=transport
        )

    @property
    def positions(self) -> int | None:
        """Tokens of the longest prompt: the model's own limit less the one token that is generated."""
        return None if self._positions is None else self._positions - 1

    def continuations(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """Return per pair −log p of its continuation's tokens, in nats. Raises EndpointError."""
        losses = self.losses([np.concatenate(pair) for pair in pairs])
        return [
            row_losses[len(prompt) - 1 :]
            for (prompt, _), (row_losses, _) in zip(pairs, losses, strict=True)
        ]

    def losses(self, sequences: Sequence[Ids]) -> list[Losses]:
        """Return per sequence (−log p, True if likeliest) of all tokens but the first."""
        sequence_losses: list[Losses | None] = [None] * len(sequences)
        for _, places in batches(sequences, lambda length: rows_per_batch(length, 1)):
            prompts = [sequences[place].tolist() for place in places]
            choices = self._ask(prompts, max_tokens=1, echo=True, logprobs=1)
            with self._understood():
                for place, prompt, choice in zip(places, prompts, choices, strict=True):
                    sequence_losses[place] = self._read(choice, len(prompt))
        return [each for each in sequence_losses if each is not None]

    def replies(self, problems: Sequence[PackedProblem], tokenizer: Tokenizer) -> list[str]:
        """Return the text of one greedy reply per problem. Raises EndpointError.

        Replies are cut here at all stop texts, because the server gets only the first four.
        """
        result = []
        for posed in problems:
            problem = posed.problem
            stops = {"stop": list(problem.stop[:4])} if problem.stop else {}
            (choice,) = self._ask([posed.ids.tolist()], max_tokens=problem.max_tokens, **stops)
            text = choice.get("text")
            if not isinstance(text, str):
                raise self._error("an answer has no text")
            ends = [place for stop in problem.stop if (place := text.find(stop)) >= 0]
            result.append(text[: min(ends)] if ends else text)
        return result

    def close(self) -> None:
        """Close the HTTP connections."""
        self._client.close()

    def _read(self, choice: Mapping[str, Any], length: int) -> Losses:
        fields = choice.get("logprobs") or {}
        if not fields.get("token_logprobs") or not fields.get("top_logprobs"):
            raise self._error(
                "it gives no log-probabilities of prompts: the server must support `echo` "
                "together with `logprobs`"
            )
        logprobs, tops = list(fields["token_logprobs"]), list(fields["top_logprobs"])
        if len(logprobs) < length or len(tops) < length:
            raise self._error(
                f"a prompt of {length} tokens came back with {len(logprobs)} log-probabilities"
            )
        if any(not isinstance(value, int | float) for value in logprobs[1:length]):
            raise self._error("a token of a prompt has no log-probability")
        own_logprobs = np.asarray(logprobs[1:length], np.float64)
        if not (own_logprobs <= ROUNDING).all():  # False for NaN
            raise self._error("a log-probability is above 0, or no number")
        highest = np.asarray([max(top.values()) for top in tops[1:length]], np.float64)
        return (-own_logprobs).astype(np.float32), own_logprobs >= highest - ROUNDING

    def _ask(self, prompts: list[list[int]], **fields: object) -> list[Mapping[str, object]]:
        """Return the choices (dicts) that the server answers, in the order of the prompts."""
        body = {"model": self._model, "prompt": prompts, "temperature": 0, "n": 1, **fields}
        try:
            answer = self._client.post(f"{self._address.bare}/completions", json=body)
        except httpx.TimeoutException as error:
            raise self._error(f"no answer in {PATIENCE:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise self._error(f"it cannot be reached ({error or type(error).__name__})") from error
        if answer.status_code != 200:
            raise self._error(f"it answered {answer.status_code}: {answer.text.strip()[:300]}")
        with self._understood():
            choices = {int(c["index"]): dict(c) for c in answer.json()["choices"]}
            if missing := set(range(len(prompts))) - set(choices):
                raise self._error(f"its answer lacks a choice for {len(missing)} prompts")
            return [choices[number] for number in range(len(prompts))]

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Turn errors of reading an answer within this context into EndpointError."""
        try:
            yield
        except (
            AttributeError,
            TypeError,
            LookupError,
            ArithmeticError,
            ValueError,
            RecursionError,
        ) as error:
            what = f"{type(error).__name__}: {str(error)[:200]}"
            raise self._error(f"its answer is not that of a completion ({what})") from error

    def _error(self, what: str) -> EndpointError:
        message = self._address.masked(what, self._key)  # a server may repeat what it was sent
        return EndpointError(
            f"endpoint {self._address.shown}, model {self._model!r}: {message}. Check the address, the "
            "name under which the model is served, and the key in FORGE_ENDPOINT_KEY."
        )
