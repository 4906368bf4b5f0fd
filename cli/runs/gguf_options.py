"""Options of `forge export` that only GGUF files have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from worker.exports.formats import Gguf

OPTIONS: tuple[Callable[[Callable], Callable], ...] = (
    click.option(
        "--imatrix",
        multiple=True,
        metavar="DATA",
        help="Of a quantised GGUF file: text that tells how much each input of a matrix matters, or a "
        "file of llama-imatrix; again for several.",
    ),
    click.option(
        "--imatrix-out",
        type=click.Path(),
        help="Keep the importance matrix, in llama.cpp's format.",
    ),
    click.option(
        "--measure",
        multiple=True,
        metavar="DATA",
        help="Of a GGUF file: text to measure its bits per byte on, in llama.cpp (default: that of "
        "--imatrix).",
    ),
    click.option(
        "--fallback",
        type=click.Choice(["F16"]),
        help="Of a GGUF file of type TQ1_0 or TQ2_0: for matrices whose rows are no multiple of 256.",
    ),
    click.option("--ollama", is_flag=True, help="Write a Modelfile beside the GGUF file."),
)


def gguf_options(command: Callable) -> Callable:
    """Add the options to a command, which gets them as `gguf`."""

    @functools.wraps(command)
    def collected(**given: Any) -> Any:
        values = {name: given.pop(name) for name in Gguf.__dataclass_fields__}
        return command(**given, gguf=Gguf(**values))

    function: Callable = collected
    for option in reversed(OPTIONS):
        function = option(function)
    return function
