"""Report as one HTML file: rendered from the Markdown, with the picture inside, without scripts.

Names of models in a report come from strangers. HTML in the Markdown is shown as text, images are
not loaded, and only links to https are links. Pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import Any

from markdown_it import MarkdownIt

#: Name of the file in a result's folder.
NAME = "report.html"
#: Line of the Markdown that shows the report's picture.
PICTURE = "![Fitness by generation](report.svg)"
#: Form of the page, and the program that renders the Markdown; another one may write other HTML.
RENDERER = f"page 2, markdown-it-py {version('markdown-it-py')}"
#: Sections from which on a page has a table of contents.
MANY = 3

_RENDERED = re.compile(
    r'<meta name="generator" content="((?:page \d{1,3}, )?markdown-it-py [0-9a-z.]{1,20})">'
)
_SVG = "data:image/svg+xml;base64,"
_EMBEDDED = re.compile(f'<img src="{re.escape(_SVG)}([A-Za-z0-9+/]+=*)"')

#: What a browser may load for the page: nothing but what stands in it.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

#: The page, with `$policy`, `$renderer`, `$title` and `$body`.
_PAGE = Template((files("agent_forge.runs.panels") / "report_page.html").read_text("utf-8"))


def page(markdown: str, title: str, svg: bytes | None = None) -> bytes:
    """Return a report's Markdown as the bytes of an HTML file, with its picture (an SVG file) inside.

    A report of several sections has a table of contents below its title. The picture stands at its line
    of the Markdown, else before the first section. Without `svg` it is left out.
    """
    before, line, after = markdown.partition(f"\n{PICTURE}\n")
    if not line and svg is not None:
        before, line, after = markdown.partition("\n## ")
        after = line + after
    sections: list[str] = []
    body = _rendered(before, sections)
    if svg is not None and line:
        source = _SVG + base64.b64encode(svg).decode("ascii")
        alt = "Fitness and diversity by generation, and the champion's leads"
        body += f'<figure><img src="{source}" alt="{alt}"></figure>\n'
    body += _rendered(after, sections)
    if len(sections) >= MANY:
        body = body.replace("</h1>\n", f"</h1>\n{_contents(sections)}", 1)
    head = {"policy": POLICY, "renderer": RENDERER, "title": escape(title)}
    return _PAGE.substitute(head, body=body).encode()


def embedded(content: bytes) -> bytes | None:
    """Return the bytes of the picture (an SVG file) inside of a page; None if there is none."""
    match = _EMBEDDED.search(content.decode("utf-8", "replace"))
    try:
        return base64.b64decode(match[1], validate=True) if match else None
    except ValueError:
        return None


def renderer(content: bytes) -> str | None:
    """Return name and version of the program that rendered a page; None if the page has neither."""
    match = _RENDERED.search(content.decode("utf-8", "replace"))
    return match[1] if match else None


def _rendered(markdown: str, sections: list[str]) -> str:
    """Return Markdown (CommonMark with tables) as HTML; see the module for what is not rendered.

    Each heading of the second level gets an id by its number, and its text is added to `sections`.
    """
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")
    parser.disable("image")
    # No other link is allowed.
    parser.validateLink = lambda url: url.lower().startswith("https://")  # pyright: ignore[reportAttributeAccessIssue]
    parser.add_render_rule("table_open", lambda *_: '<div class="table" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    env: dict[str, Any] = {}
    tokens = parser.parse(markdown, env)
    for heading, inside in pairwise(tokens):
        if heading.type == "heading_open" and heading.tag == "h2":
            words = (part.content for part in inside.children or ())
            sections.append("".join(words))
            heading.attrSet("id", f"section-{len(sections)}")
    return parser.renderer.render(tokens, parser.options, env)


def _contents(sections: Sequence[str]) -> str:
    """Return the table of contents as HTML: a link to each section."""
    links = (
        f'<li><a href="#section-{number}">{escape(words)}</a></li>'
        for number, words in enumerate(sections, start=1)
    )
    return f'<nav aria-label="Contents"><ol>{"".join(links)}</ol></nav>\n'
