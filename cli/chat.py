"""`forge chat`: talk with a model."""

from __future__ import annotations

import math
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import emit, json_option
from agent_forge.runs.system.bounded_files import read_prompt

if TYPE_CHECKING:
    from agent_forge.evaluation.chat.conversation import Reply, ReplySettings, Speaker

HELP = """/reset         forget what was said
/system TEXT   reset, and set the system prompt; without TEXT there is none
/quit          end, as Ctrl-D does
Ctrl-C stops a reply; what was written so far stays."""
#: Reason → message after a reply that was cut.
ENDED = {
    "length": "cut after {tokens} tokens: --max-tokens",
    "context": "the model's context is full",
    "stopped": "stopped",
}
#: Exit code of a command that Ctrl-C ended.
INTERRUPTED = 130


@click.command("chat")
@click.argument("model")
@click.option("--once", metavar="TEXT", help="Print the reply to TEXT alone, and end.")
@click.option("--system", metavar="TEXT", help="The system prompt, for the model's chat template.")
@click.option(
    "--prompt",
    type=click.Path(),
    help="A file with the system prompt; of a model without a template it stands before each text.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 100),
    help="0 takes the likeliest token.  [default: as generation_config.json says, or 0]",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Draw among the likeliest tokens that together have this probability.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 1 << 20),
    default=512,
    show_default=True,
    help="Tokens of the longest reply.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 63) - 1),
    help="Seed of the draws; the same seed gives the same replies.  [default: another one each time]",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="cpu or cuda:N; auto: a GPU if there is one. Not for a GGUF file.",
)
@json_option
def chat_command(
    model: str,
    once: str | None,
    system: str | None,
    prompt: str | None,
    max_tokens: int,
    temperature: float | None,
    top_p: float | None,
    seed: int | None,
    device: str,
    as_json: bool,
) -> int:
    """Talk with a model: type a line, and it replies.

    MODEL is a folder, a Hub id, a run (RUN, RUN:ROLE), a registered name, BASE+ADAPTER, or a GGUF file,
    which replies in llama.cpp (package xllamacpp). Replies follow the model's chat template; a model
    without one continues each text by itself. /help lists the commands. If the standard input is no
    terminal, its lines are the texts, and stdout has the replies alone.

    Control characters of a reply are escaped. With --once, --json prints the reply exactly, its tokens
    and seconds, and the reason of its end: end, length, context or stopped.

    \b
    Example:
      forge chat baked
      forge chat 20261121-3fa9c1:mean --once "What is a lighthouse?"
      forge chat champion.gguf --prompt persona.txt --temperature 0.7 --seed 1
    """
    from agent_forge.evaluation.chat.conversation import ReplySettings

    if as_json and once is None:
        raise click.UsageError("--json is of one reply: add --once TEXT.")
    if once is not None and not once.strip():
        raise click.UsageError("--once is empty: give a text.")
    for option, value in (("--temperature", temperature), ("--top-p", top_p)):
        if value is not None and math.isnan(value):
            raise click.UsageError(f"{option} is no number.")
    prompted = _system(system, prompt)
    seed = secrets.randbits(32) if seed is None else seed
    speaker = _speaker(model, device)
    if system is not None:
        _check_system(speaker)
    talk = _Talk(speaker, ReplySettings(max_tokens, temperature, top_p, seed), prompted)
    return talk.session() if once is None else talk.once(once, as_json)


def _system(system: str | None, prompt: str | None) -> str | None:
    """Return `system`, or the text of the file `prompt`, or None. Raises UsageError, ConfigError."""
    if system is not None and prompt is not None:
        raise click.UsageError("give --system or --prompt, not both.")
    return system if prompt is None else read_prompt(Path(prompt))


def _check_system(speaker: Speaker) -> None:
    """Raise ConfigError if the model takes no system prompt."""
    from agent_forge.runs.errors import ConfigError

    if not speaker.templated:
        raise ConfigError(
            f"{speaker.name} has no chat template, so no system prompt. A text that stands before each "
            "of yours: --prompt FILE."
        )


def _speaker(model: str, device: str) -> Speaker:
    """Return the model that the user named as a loaded Speaker. Raises SourceError and others."""
    from agent_forge.weights.devices import check_device

    check_device(device)
    if model.endswith(".gguf") and Path(model).is_file():
        from agent_forge.evaluation.chat.llama_cpp import LlamaCppSpeaker

        return LlamaCppSpeaker(Path(model))
    from agent_forge.evaluation.chat.resident import ResidentSpeaker
    from agent_forge.runs.home import Home
    from agent_forge.weights.devices import resolve as device_of
    from agent_forge.weights.folders.sources import resolve
    from agent_forge.weights.storage.model_origin import Finder
    from agent_forge.weights.threads import set_threads

    reference = resolve(model, named=Finder(Home.default(), _tell))
    set_threads()
    return ResidentSpeaker(reference, device_of(device))


def _check_text(text: str) -> None:
    """Raise ConfigError if a text has bytes that are not UTF-8."""
    from agent_forge.runs.errors import ConfigError

    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError("the text has bytes that are no UTF-8: the model is not asked.") from error


def _tell(text: str) -> None:
    """Print a message about the conversation to stderr."""
    from agent_forge.runs.system.plain_text import visible

    click.echo(visible(text), err=True)


class _Talk:
    """A conversation with a model."""

    def __init__(self, speaker: Speaker, settings: ReplySettings, system: str | None) -> None:
        self._speaker, self._settings = speaker, settings
        self._begin(system)

    def _begin(self, system: str | None) -> None:
        """Start the conversation again, under a system prompt if there is one."""
        self._system = system
        self._messages = [] if system is None else [{"role": "system", "content": system}]

    def once(self, text: str, as_json: bool) -> int:
        """Print the reply to one text, as JSON if asked; return 130 if Ctrl-C stopped it, else 0."""
        start = time.monotonic()
        reply = self._reply(text, shown=not as_json)
        if as_json:
            emit(
                {
                    "model": self._speaker.name,
                    "reply": reply.text,
                    "tokens": reply.tokens,
                    "seconds": time.monotonic() - start,
                    "reason": reply.reason,
                    "seed": self._settings.seed,
                }
            )
        elif reply.text:
            click.echo()
        else:
            _tell("(no reply)")
        return INTERRUPTED if reply.reason == "stopped" else 0

    def session(self) -> int:
        """Reply to each line of the standard input until its end or /quit; return the exit code, 0."""
        from agent_forge.runs.errors import ConfigError

        self._introduce()
        for line in _lines():
            try:
                if line.startswith("/"):
                    if not self._command(line):
                        return 0
                elif line.strip():
                    self._say(line)
            except ConfigError as error:
                _tell(str(error))
        return 0

    def _introduce(self) -> None:
        """Print the model's name, and a hint if it has no chat template."""
        speaker = self._speaker
        _tell(f"{speaker.name}: {speaker.described}. /help lists the commands.")
        if not speaker.templated:
            _tell("It has no chat template: it continues each text that you type.")

    def _command(self, line: str) -> bool:
        """Do what a line with a / says; return False for /quit, otherwise True."""
        word, _, text = line.strip().partition(" ")
        if word == "/quit":
            return False
        if word == "/help":
            click.echo(HELP, err=True)
        elif word == "/reset":
            self._begin(self._system)
        elif word == "/system":
            if text.strip():
                _check_system(self._speaker)
            self._begin(text.strip() or None)
        else:
            _tell(
                f"there is no command {word}: /help lists them. A text with / needs a blank in front."
            )
        return True

    def _say(self, text: str) -> None:
        """Print the reply to a text, and why it ended if it was cut."""
        reply = self._reply(text, shown=True)
        click.echo("" if reply.text else "(no reply)")
        if reply.reason in ENDED:
            _tell(f"({ENDED[reply.reason].format(tokens=reply.tokens)})")

    def _reply(self, text: str, shown: bool) -> Reply:
        """Return the reply to a text, printed piece by piece if `shown`; both join the history."""
        from agent_forge.evaluation.chat.conversation import fitting
        from agent_forge.runs.system.plain_text import visible_lines

        _check_text(text)
        speaker, message = self._speaker, {"role": "user", "content": text}
        past = [m for m in self._messages if speaker.templated or m["role"] == "system"]
        messages, ids = fitting(speaker, [*past, message], self._settings)
        if dropped := len(past) + 1 - len(messages):
            _tell(f"(the context is full: the oldest {dropped} messages are forgotten)")
        reply = speaker.reply(ids, self._settings)
        with _stopping(reply):
            for piece in reply:
                if shown:
                    click.echo(visible_lines(piece), nl=False)
        self._messages = [*messages, {"role": "assistant", "content": reply.text}]
        return reply


@contextmanager
def _stopping(reply: Reply) -> Iterator[None]:
    """Wrap a block: the first Ctrl-C stops the reply, a second one ends the program."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        reply.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _lines() -> Iterator[str]:
    """Yield the lines that the user types, or those of a pipe, up to Ctrl-D or Ctrl-C."""
    if sys.stdin is None:  # it is closed
        return
    if not sys.stdin.isatty():
        yield from (line.rstrip("\r\n") for line in sys.stdin)
        return
    with suppress(ImportError):
        import readline  # noqa: F401 - lines can be edited, and earlier ones called back
    while True:
        try:
            yield input("> ")
        except (EOFError, KeyboardInterrupt):
            click.echo(err=True)
            return
