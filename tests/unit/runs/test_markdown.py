"""Head and panels as Markdown: every panel, bounded, and without meaning in names of others."""

from __future__ import annotations

from agent_forge.runs.panels import tables as markdown
from agent_forge.runs.panels.head import Fact, Head, Panels, Result
from agent_forge.runs.panels.panels import Axis, Column, Lead, Lines, Metric, Series, Units
from testing.panels import EVERY


def head(**more: object) -> Head:
    """Return the head of a run."""
    told = {"run": "r", "kind": "toy", "title": "a run", "status": "completed", "place": 9}
    return Head.model_validate({**told, "done": 2, "of": 2, "unit": "step", **more})


def test_every_panel_is_a_titled_table() -> None:
    text = markdown.markdown(Panels(head=head(), panels=tuple(EVERY.values())))
    assert text.startswith("# Run r\n\nKind: toy. Status: completed. Done: 2 of 2 (step).\n")
    assert text.count("\n## ") == len(EVERY)
    tables = [line for line in text.split("\n") if set(line) == {"|", "-"}]
    assert len(tables) == len(EVERY)


def test_the_result_is_said_with_its_interval_items_and_lead() -> None:
    result = Result(
        name="champion",
        metric=Metric(name="accuracy", unit="%"),
        value=91.5,
        low=90.0,
        high=93.0,
        over="base",
        lead=Lead(value=2.5, low=-0.5, high=5.5, verdict="level"),
        on="test",
        n=2000,
    )
    facts = (Fact(name="seed", value=7),)
    text = markdown.markdown(Panels(head=head(result=result, facts=facts), panels=()))
    assert "**champion**: accuracy 91.50 % (90 to 93) on test, 2,000 items; " in text
    assert "; lead over base: 2.5 (-0.5 … 5.5), level.\n" in text
    assert "- seed: 7\n" in text


def test_a_long_table_ends_and_says_how_much_is_left_out() -> None:
    """A client's model reads the whole text."""
    rows = tuple((number,) for number in range(markdown.ROWS + 3))
    panel = Units(
        name="x",
        title="X",
        says="Many.",
        unit="row",
        columns=(Column(name="number", type="integer"),),
        rows=rows,
    )
    text = markdown.markdown(Panels(head=head(), panels=(panel,)))
    assert "| 2 |" not in text  # a table keeps its newest rows
    assert "| 3 |\n| 4 |" in text
    assert f"| {markdown.ROWS + 2} |\n\n{markdown.ROWS} of {markdown.ROWS + 3} rows.\n" in text


def test_every_series_is_seen_however_long_the_first_is() -> None:
    """A run has several trainings, and the table's end is not the last one's end."""
    long = tuple(range(1000))
    series = tuple(Series(name=name, x=long, y=long) for name in ("a", "b"))
    axis = Axis(name="step")
    panel = Lines(name="l", title="L", says="Long.", x=axis, y=axis, series=series)
    text = markdown.markdown(Panels(head=head(), panels=(panel,)))
    for name in ("a", "b"):
        cells = [line.split(" | ") for line in text.split("\n") if line.startswith(f"| {name} ")]
        steps = [int(cell[3]) for cell in cells]
        assert (steps[0], steps[-1]) == (0, 999)
        assert len(steps) <= markdown.POINTS


def test_names_of_others_are_no_markdown() -> None:
    """A name could end a table, load a picture or hide a link."""
    odd = "a|b\n# c <img src=x> [d](http://e) `f` \\"
    facts = (Fact(name=odd, value="x" * 500),)
    text = markdown.markdown(Panels(head=head(facts=facts), panels=()))
    [line] = [line for line in text.split("\n") if line.startswith("- ")]
    assert line.startswith("- a\\|b\\\\n# c &lt;img src=x> \\[d](http://e) \\`f\\` \\\\: xxx")
    assert line.endswith("x …")
    assert line.count("x") < 210
