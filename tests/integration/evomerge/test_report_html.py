"""The report as HTML: all that the Markdown has, in one file that loads nothing and runs nothing."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from agent_forge.evomerge.reports import report
from agent_forge.runs.panels import report_html
from testing.worlds.fake_world import World, small

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


class Elements(HTMLParser):
    """All elements of a page, as a browser would read them, and the page's text."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content.decode("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of one kind."""
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def links(self) -> list[dict[str, str | None]]:
        """The links that lead out of the page: all but those of its table of contents."""
        return [link for link in self.of("a") if not str(link.get("href")).startswith("#section-")]


@pytest.fixture(scope="module")
def data() -> dict:
    """The report of a finished run."""
    world = World(small(population_size=8, elite_size=2, generations=2))
    return report.report(world.run(), world.rows)


def rendered(data: dict, name: str) -> Elements:
    """The page of a run whose first source has a name that a stranger chose."""
    first = {**data["rivals"][0], "name": name}
    told = {**data, "rivals": [first, *data["rivals"][1:]], "warnings": [f"{name} is odd"]}
    return Elements(report_html.page(report.markdown(told), "Run r", SVG))


def test_the_page_says_what_the_markdown_says(data: dict) -> None:
    """Tables are tables, every heading and every rival is there; the only image is inside."""
    markdown = report.markdown(data)
    page = Elements(report_html.page(markdown, "Run <r>", SVG))
    assert data["verdict"]["sentence"] in page.text
    assert all(rival["name"] in page.text for rival in data["rivals"])
    for line in markdown.splitlines():
        if line.startswith("#"):
            assert line.lstrip("# ") in page.text
    assert len(page.of("table")) == markdown.count("|---|\n")
    assert len(page.of("tr")) == sum(
        line.startswith("|") and not line.startswith("|---") for line in markdown.splitlines()
    )
    (image,) = page.of("img")
    assert str(image["src"]).startswith("data:image/svg+xml;base64,")
    assert "Run <r>" in page.text
    assert "![" not in page.text


def test_the_page_needs_nothing_else(data: dict) -> None:
    """No script, no style sheet, no font; and a policy that forbids a browser to load any."""
    page = Elements(report_html.page(report.markdown(data), "Run r", SVG))
    tags = {tag for tag, _ in page.found}
    assert not tags & {"script", "link", "iframe", "object", "base", "form"}
    assert page.links == []
    policy = next(m for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert str(policy["content"]).startswith("default-src 'none'; img-src data:;")
    assert any(m.get("name") == "viewport" for m in page.of("meta"))


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "![x](http://example.com/a.png)",
        "![x](https://example.com/a.png)",
        "![x](report.svg)",
        "![x](data:image/png;base64,AAAA)",
        "[x](javascript:alert(1))",
        "[x](http://example.com)",
        "[x](file:///etc/passwd)",
        "<http://example.com>",
        "</title></style><b onclick=alert(1)>",
        "&lt;script&gt;",
    ],
)
def test_a_name_of_a_stranger_is_text(data: dict, name: str) -> None:
    """It adds no image, no script and no handler, in the tables as in the sentences."""
    page = rendered(data, name)
    plain = rendered(data, "plain")
    others = [tag for tag, attributes in page.found if tag != "a" or attributes not in page.links]
    assert others == [tag for tag, _ in plain.found]
    assert len(page.of("img")) == 1
    assert all(not key.startswith("on") for _, attributes in page.found for key in attributes)
    assert all(str(link["href"]).startswith("https://") for link in page.links)
    if "https" not in name:
        assert not page.links


def test_only_https_is_a_link(data: dict) -> None:
    """A click on it is the reader's own choice; nothing is loaded before."""
    (link, again) = rendered(data, "[x](https://example.com/y)").links
    assert link == again == {"href": "https://example.com/y"}


def test_a_table_of_contents_leads_to_every_section(data: dict) -> None:
    """In the order of the page; a short report needs none."""
    page = report_html.page(report.markdown(data), "Run r", SVG).decode()
    targets = [attributes["id"] for tag, attributes in Elements(page.encode()).found if tag == "h2"]
    links = [str(link["href"]) for link in Elements(page.encode()).of("a")]
    assert links == [f"#{target}" for target in targets]
    assert len(set(targets)) == len(targets) > report_html.MANY
    assert page.index("</h1>") < page.index("<nav") < page.index("<h2")
    assert b"<nav" not in report_html.page("# Short\n\n## One\n\n## Two\n", "short")


def test_the_picture_can_be_taken_out_again(data: dict) -> None:
    """`forge verify` compares a page without its picture, and asks what rendered it."""
    page = report_html.page(report.markdown(data), "Run r", SVG)
    assert report_html.embedded(page) == SVG
    assert report_html.renderer(page) == report_html.RENDERER
    without = report_html.page(report.markdown(data), "Run r", None)
    assert report_html.embedded(without) is None
    assert not Elements(without).of("img")
    assert report_html.renderer(b"\xff") is None
