"""A GGUF file that replies in llama.cpp, by its server in the package `xllamacpp`.

llama.cpp ends its process over a file that it does not like, so it has a process of its own, which
ends with this one. The server listens on the loopback address and answers only to a key drawn for it.
Conversations are written by the chat template of the file in `template_rendering`, in bounded time, and
not by llama.cpp. A file without a template continues texts: llama.cpp would give it one.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import mmap
import os
import secrets
import select
import signal
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

from agent_forge.evaluation.chat.conversation import Message, Piece, Reason, Reply, ReplySettings, limit
from agent_forge.events.envelope import Plain
from agent_forge.runs import keys
from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.runs.home import threads
from agent_forge.runs.system.child_environment import child_environment
from agent_forge.weights.folders import template_rendering
from agent_forge.weights.folders.gguf_source import header

#: Type of a text in the metadata of a GGUF file, and the key of its chat template.
TEXT = 8
TEMPLATE = b"tokenizer.chat_template"
#: Tokens of the longest conversation: the cache of keys and values is allocated for all of them.
CONTEXT = 8192
#: Seconds that loading a file, or reading a long prompt, may take on a busy machine.
PATIENCE = 600.0
#: Variable with the server's key.
KEY = "FORGE_LLAMA_CPP_KEY"


class LlamaCppSpeaker:
    """A GGUF file, held in a process of llama.cpp."""

    def __init__(self, file: Path) -> None:
        """Load a file in llama.cpp. Raise SourceError, or UnavailableError without `xllamacpp`."""
        _check_file(file)
        self.name = file.name
        self._key = secrets.token_hex(16)
        self._address = urlsplit(_start_server(self, file, self._key))
        properties = self._answer("/props", None)
        meta = self._answer("/v1/models", None)["data"][0]["meta"]
        self.positions: int | None = properties["default_generation_settings"]["n_ctx"]
        self.described = f"{meta['n_params']:,} parameters in {meta['ftype']} in llama.cpp, greedy"
        self._template: str = properties["chat_template"]
        self._special = {
            key: properties[key] for key in ("bos_token", "eos_token") if properties.get(key)
        }
        self.templated = _has_template(file)

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of a conversation, as `Speaker` says."""
        if not self.templated:
            return self._tokens("".join(message["content"] for message in messages), True)
        try:
            text = template_rendering.rendered_by(self._template, self._special, self.name, messages)
        except template_rendering.TemplateFailedError as error:
            raise template_rendering.refused(self.name, error) from error
        return self._tokens(text, False)

    def _tokens(self, text: str, begins: bool) -> list[int]:
        """Return the token ids of a text; with `begins` the tokens that begin every text come first."""
        body = {"content": text, "add_special": begins, "parse_special": not begins}
        return self._answer("/tokenize", body)["tokens"]

    def reply(self, ids: Sequence[int], settings: ReplySettings) -> Reply:
        """Return a `Reply`, the iterator over its pieces of text, as `Speaker` says."""
        stopping = Event()
        return Reply(self._pieces(ids, settings, stopping), stopping)

    def _pieces(self, ids: Sequence[int], settings: ReplySettings, stopping: Event) -> Iterator[Piece]:
        most, reason = limit(self, ids, settings)
        connection, answer = self._ask("/completion", _request(ids, most, settings))
        try:  # the server stops writing when the connection is closed
            count = 0
            for event in _events(answer):
                more, count = event["tokens_predicted"] - count, event["tokens_predicted"]
                if event["stop"]:
                    ended = event["stop_type"] == "eos"  # the end token is counted, and no text
                    why: Reason = "end" if ended else reason
                    yield Piece(event["content"], more - ended, why)
                    return
                yield Piece(event["content"], more)
                if stopping.is_set():
                    yield Piece(reason="stopped")
                    return
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise _lost(self.name) from error
        finally:
            connection.close()

    def _ask(self, path: str, body: object) -> tuple[HTTPConnection, HTTPResponse]:
        """Return (connection, response) of a request. Raise UnavailableError, SourceError."""
        connection = HTTPConnection(
            str(self._address.hostname), int(self._address.port or 0), timeout=PATIENCE
        )
        head = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            text = None if body is None else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, text, head)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _lost(self.name) from error
        if answer.status != 200:
            reason = answer.read(2000).decode(errors="replace")
            connection.close()
            raise SourceError(f"llama.cpp refuses {path} for {self.name}: {reason}")
        return connection, answer

    def _answer(self, path: str, body: object) -> Plain:
        """Return the server's answer, parsed from JSON. Raise UnavailableError, SourceError."""
        connection, answer = self._ask(path, body)
        try:
            return json.load(answer)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _lost(self.name) from error
        finally:
            connection.close()


def _request(ids: Sequence[int], most: int, settings: ReplySettings) -> dict[str, object]:
    """Return a dict, the body of the request for a reply of at most `most` tokens."""
    request = {"prompt": list(ids), "n_predict": most, "stream": True}
    temperature = settings.temperature
    if temperature is None:
        temperature = 0.0 if settings.top_p is None else 1.0
    if not temperature:
        return {**request, "temperature": 0, "samplers": ["top_k"], "top_k": 1}
    seed = keys.seed(settings.seed, "chat", len(ids)) & 0xFFFFFFFF
    drawn = {"temperature": temperature, "seed": seed, "samplers": ["temperature"]}
    if settings.top_p is not None:
        drawn |= {"samplers": ["temperature", "top_p"], "top_p": settings.top_p}
    return {**request, **drawn}


def _events(answer: HTTPResponse) -> Iterator[Plain]:
    """Yield the JSON object of each event in a stream of server-sent events."""
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def _lost(name: str) -> UnavailableError:
    return UnavailableError(
        f"llama.cpp gives no answer for {name} any more: its process has ended or hangs. Try again."
    )


def _check_file(file: Path) -> None:
    """Raise SourceError if a file is no GGUF file, UnavailableError if llama.cpp is not here."""
    if not header.is_gguf(file):
        raise SourceError(f"{file} cannot be read, or is no GGUF file: it does not begin with GGUF.")
    if importlib.util.find_spec("xllamacpp") is None:
        raise UnavailableError(
            "a GGUF file replies in llama.cpp, whose package is not installed:\n  pip install xllamacpp"
        )


def _has_template(file: Path) -> bool:
    """Return True if a GGUF file has a chat template: a key of its metadata with a text."""
    entry = struct.pack("<Q", len(TEMPLATE)) + TEMPLATE + struct.pack("<I", TEXT)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as content:
        return content.find(entry) >= 0


def _start_server(owner: object, file: Path, key: str) -> str:
    """Return the URL of a new llama.cpp server for a file; its process ends with `owner`.

    Raise SourceError with llama.cpp's last error message if the file cannot be loaded.
    """
    read, write = os.pipe()
    with tempfile.TemporaryFile() as messages, os.fdopen(read) as line:
        start = f"from {__name__} import serve; serve()"
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", start, str(file.resolve()), str(write)],
            env={**child_environment("reader"), KEY: key},
            pass_fds=[write],
            stdin=subprocess.PIPE,
            stdout=messages,
            stderr=messages,
            process_group=0,  # Ctrl-C at a terminal is not for it
        )
        os.close(write)
        weakref.finalize(owner, _end, process)
        ready, _, _ = select.select([line], [], [], PATIENCE)
        if address := line.readline().strip() if ready else "":
            return address
        _end(process)
        messages.seek(0)
        lines = messages.read().decode(errors="replace").strip().splitlines()
    header.read(file)  # raises what is wrong with the file itself
    errors = [text for text in lines if " E " in text or "rror" in text] or lines or ["no word"]
    raise SourceError(f"llama.cpp does not load {file}: {errors[-1][:300]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def serve() -> None:
    """Load a GGUF file, write the server's URL to a pipe, and answer until standard input closes."""
    xllamacpp: object = importlib.import_module("xllamacpp")
    file, out = sys.argv[-2:]
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = file, CONTEXT, 1
    count = threads() or len(os.sched_getaffinity(0))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = count
    params.fit_params, params.warmup, params.cache_ram_mib = False, False, 0
    params.api_keys, params.ui = [os.environ.pop(KEY)], False
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    server = xllamacpp.Server(params)
    os.write(int(out), f"{server.listening_address}\n".encode())
    sys.stdin.read()
    os._exit(0)  # not by way of the server's end, which may hang
