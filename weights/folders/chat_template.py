"""Check of models' chat templates for unusual code.

A chat template is a small program in Jinja that every server runs on every request, in sandboxes of
different quality. Results carry the base's template on. So a run warns if a template does things that
chat templates do not need.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent_forge.weights.folders import companions

#: Characters of the longest template that is checked; the longest in use have about 30,000.
MOST_LETTERS = 1 << 20
#: Nodes that read other templates, which servers do not have.
_OTHERS = (nodes.Import, nodes.FromImport, nodes.Include, nodes.Extends)


class _Generation(Extension):
    """Transformers' tag around the assistant's text: {% generation %} … {% endgeneration %}."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the list of nodes inside the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def unusual(folder: Path) -> list[tuple[str, str]]:
    """Return (file name, reason) for each unusual chat template of a model folder.

    A template is unusual if it is no Jinja, reads other templates, or reads attributes whose names
    begin with `_`. Programs break out of a sandbox by such attributes.
    """
    return [(name, why) for name, text in _templates(folder) if (why := _why_unusual(text)) is not None]


def _templates(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (file name, template's text) of each chat template in a model folder."""
    for name, file in {**companions.found(folder), **companions.in_folders(folder)}.items():
        if name.endswith(".jinja"):
            yield name, file.read_text("utf-8", "replace")
        elif name in ("chat_template.json", "tokenizer_config.json", "processor_config.json"):
            try:
                settings = json.loads(file.read_bytes())
            except (ValueError, RecursionError):
                continue
            templates = settings.get("chat_template") if isinstance(settings, dict) else None
            named = (
                [entry.get("template") for entry in templates if isinstance(entry, dict)]
                if isinstance(templates, list)
                else [templates]
            )
            yield from ((name, text) for text in named if isinstance(text, str))


def _why_unusual(text: str) -> str | None:
    """Return why a template is unusual, in words; None if it is not."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    if len(text) > MOST_LETTERS:
        return f"has {len(text):,} characters, more than {MOST_LETTERS:,}"
    try:
        for node in environment.parse(text).find_all(nodes.Node):
            if isinstance(node, _OTHERS):
                return f"reads another template (line {node.lineno})"
            hidden = _hidden(node)
            if hidden is not None:
                return f"reads {hidden!r} (line {node.lineno})"
    except (jinja2.TemplateError, RecursionError) as error:
        return f"is no Jinja template ({str(error)[:100]})"
    return None


def _hidden(node: object) -> str | None:
    """Return the name beginning with `_` that a node reads, "attr(…)" for that filter; else None."""
    name = None
    if isinstance(node, nodes.Getattr):
        name = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        name = node.arg.value
    elif isinstance(node, nodes.Filter) and node.name == "attr":
        return "attr(…)"
    return name if isinstance(name, str) and name.startswith("_") else None
