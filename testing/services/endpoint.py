"""A small local server that answers like an OpenAI-compatible one, from a model folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from testing.services.servers import answering

#: Request → (status, body as JSON or as text).
Answers = Callable[[dict[str, Any]], tuple[int, Any]]


def completions(folder: Path, name: str) -> Answers:
    """Return a function that answers by transformers alone: greedy completions, log-probabilities."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def choice(prompt: list[int], asked: dict[str, Any]) -> dict[str, Any]:
        ids = list(prompt)
        for _ in range(asked["max_tokens"]):
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
            text = tokenizer.decode(ids[len(prompt) :], skip_special_tokens=True)
            ends = [p for s in asked.get("stop", []) if (p := text.find(s)) >= 0]
            if ends or ids[-1] == tokenizer.eos_token_id:
                text = text[: min(ends)] if ends else text
                break
        result: dict[str, Any] = {"text": text}
        if asked.get("echo"):
            scores = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            own = [None, *(float(scores[i, t]) for i, t in enumerate(ids[1:]))]
            best = [None, *({str(int(s.argmax())): float(s.max())} for s in scores[:-1])]
            result["logprobs"] = {"token_logprobs": own, "top_logprobs": best}
        return result

    def answer(asked: dict[str, Any]) -> tuple[int, Any]:
        if asked["model"] != name:
            return 404, {"error": {"message": f"The model {asked['model']} does not exist."}}
        # Not in order, as servers may.
        found = [{**choice(p, asked), "index": i} for i, p in enumerate(asked["prompt"])]
        return 200, {"choices": found[::-1]}

    return answer


@contextmanager
def serving(
    answers: Answers, location: str | None = None
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve on a free port; yield the URL and a list that grows by each request's headers and body.

    `location`: where redirects lead, in every answer's header of that name.
    """
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
            status, said = answers(body)
            sent = (said if isinstance(said, str) else json.dumps(said)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing to stderr."""

    with answering(Handler) as url:
        yield f"{url}/v1", seen
