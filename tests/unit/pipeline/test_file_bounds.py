"""A pipeline's file is bounded before it is parsed: the parser's time grows with the square."""

from __future__ import annotations

import pytest

from agent_forge.pipeline.submission import file
from agent_forge.pipeline.submission.file import parse
from agent_forge.runs.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n".join(f"[a.{n}]" for n in range(90_000)), "more than 5,000 tables and lists"),
        ("\n".join(f"k{n} = 1" for n in range(30_000)), "more than 10,000 keys"),
        (".".join("a" * 300_000) + " = 1", "more than 4,000 dots in keys"),
        (f"a = [{'1,' * 300_000}]", "more than 20,000 entries of lists"),
    ],
    ids=["tables", "keys", "a long key", "a long list"],
)
def test_a_file_with_more_than_a_pipeline_needs_is_refused_before_it_is_parsed(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """90,000 tables took five seconds of a thread of the server."""
    assert len(text) < file.MOST_BYTES
    monkeypatch.setattr(file, "tomllib", None)
    with pytest.raises(
        ConfigError, match=f"the file: it has {words}.*: a pipeline needs a few hundred"
    ):
        parse(text)


@pytest.mark.parametrize(
    "form",
    ['test = ["{}"]', "test = ['{}']", 'test = ["""{}"""]', "test = ['''{}''']", "# {}\ntest = []"],
)
def test_texts_and_comments_do_not_count(form: str) -> None:
    """A path or a prompt may have any number of dots."""
    assert "test" in parse(form.format("a.b=[c, " * 20_000))


@pytest.mark.parametrize("start", ['"', "'", '"""', "'''", '"""a""', '"a\\\\'])
def test_a_text_without_an_end_is_an_error_of_the_file(start: str) -> None:
    with pytest.raises(ConfigError, match="the file: "):
        parse(f"test = {start}" + "x" * 1000)


@pytest.mark.parametrize("piece", ['"a\\', '"""a"', "'''a'", "''\\n", '"', "#"])
def test_signs_that_begin_texts_are_looked_at_once(piece: str) -> None:
    """Each of these could make the search of texts begin again at every sign."""
    with pytest.raises(ConfigError):
        parse("=" + piece * (900_000 // len(piece)))
