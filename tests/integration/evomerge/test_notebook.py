"""`Run`: what a notebook sees of a run, whole or under way."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import closing
from pathlib import Path

import pytest

from agent_forge.evomerge import Run
from agent_forge.evomerge.recipes.recipe import closure, parents
from agent_forge.evomerge.reports.outputs import tables as notebook
from agent_forge.runs.errors import NotFoundError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.lists import tables
from testing.worlds import fake_runs


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A place with the finished run `whole`, and `half`, which has one generation."""
    place = Home(tmp_path_factory.mktemp("home"))
    with closing(place.open_store()) as store:
        fake_runs.whole(store, "whole", seed=5)
        fake_runs.submit(store, "half")
        fake_runs.finish(store, "half", lambda state: len(state.generations) == 1)
        fake_runs.submit(store, "new")
    return place


def test_both_names_give_one_class(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its place comes from the environment."""
    import agent_forge

    assert type(agent_forge.Run("whole", home)) is Run
    monkeypatch.setenv("FORGE_HOME", str(home.folder))
    monkeypatch.delenv("FORGE_DATABASE_URL", raising=False)
    assert Run("who").name == "whole"
    with pytest.raises(NotFoundError, match="the newest runs are new, half, whole"):
        Run("nobody")


@pytest.mark.slow
def test_importing_it_loads_neither_torch_nor_pandas() -> None:
    code = (
        "from agent_forge.evomerge import Run; import sys\n"
        "print({'torch', 'pandas', 'matplotlib', 'wandb'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_it_says_in_a_line_how_it_stands(home: Home) -> None:
    run = Run("whole", home)
    assert run.state.champion
    score = run.state.champions[-1].score
    champion = f"champion {run.state.champion[:12]} with {score:.4f}"
    assert repr(run) == f"<Run 'whole': completed, {champion}, 3 generations>"
    assert repr(Run("half", home)).endswith("1 generation>")
    assert repr(Run("new", home)) == "<Run 'new': submitted, 0 generations>"


@pytest.mark.parametrize("kind", tables.tables("evomerge"))
@pytest.mark.parametrize("name", ["whole", "half", "new"])
def test_frames_are_the_tables(home: Home, name: str, kind: str) -> None:
    run = Run(name, home)
    frame = run.frame(kind)
    table = tables.table(kind, run.state, run.rows)
    expected = list(table.rows)
    assert list(frame.columns) == list(table.columns)
    assert len(frame) == len(expected)
    for column, type_ in table.columns.items():
        known = {"int": "Int64", "float": "float64"}
        assert frame[column].dtype == known.get(type_, frame[column].dtype)
        missing = frame[column].isna() if type_ != "texts" else [False] * len(frame)
        pairs = zip(frame[column], missing, strict=True)
        told = [None if gone else value for value, gone in pairs]
        assert told == [row[column] for row in expected], column


def test_without_pandas_it_says_what_to_install(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnavailableError, match=r"pip install 'pandas>="):
        Run("whole", home).frame()


def test_a_plot_shows_what_the_frame_has(home: Home) -> None:
    """Fitness and diversity; the leads once there are some. Nothing of pyplot's."""
    run = Run("whole", home)
    figure, frame = run.plot(), run.frame()
    champion, draw, spread, right = figure.axes
    lines = [*champion.get_lines()[:1], *draw.get_lines()[:2]]
    for line, column in zip(lines, ("champion", "best", "mean"), strict=True):
        assert list(line.get_xdata()) == list(frame["generation"])
        assert list(line.get_ydata()) == list(frame[column])
    assert list(spread.get_lines()[0].get_ydata()) == list(frame["diversity"])
    assert [t.get_text() for t in right.get_yticklabels()][::-1][0] == "base"
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize("name", ["half", "new"])
def test_a_run_under_way_can_be_plotted(home: Home, name: str) -> None:
    figure = Run(name, home).plot()
    assert len(figure.axes) == 3, "a panel for each set of items, and one of diversity"
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_lineage_is_the_recipes_closure(home: Home) -> None:
    """Nodes are the family, edges its recipes' inputs, whoever is asked for."""
    run = Run("whole", home)
    last = max(run.state.generations)
    for candidate in ("champion", run.state.generations[last].ranking[0][:12]):
        lineage = run.lineage(candidate)
        family = closure(lineage.candidate.recipe_id, run.state.recipes)
        assert {node.recipe_id for node in lineage.nodes} == set(family)
        expected = {(p, c) for c, recipe in family.items() for p in parents(recipe)}
        assert set(lineage.edges) == expected
        assert len(lineage.edges) == len(expected)
        depth = {node.recipe_id: node.depth for node in lineage.nodes}
        assert all(depth[parent] > depth[child] for parent, child in lineage.edges)
    with pytest.raises(NotFoundError):
        run.lineage("ffffffff")
    with pytest.raises(NotFoundError, match="no champion"):
        Run("new", home).lineage()


def test_a_lineage_reads_as_a_tree(home: Home) -> None:
    """Every model once with its parents; every edge on a line of its own."""
    run = Run("whole", home)
    lineage = run.lineage(run.state.generations[2].ranking[0])
    lines = repr(lineage).splitlines()
    assert lines[0].startswith(lineage.candidate.recipe_id[:12])
    assert lineage.candidate.place.startswith("candidate")
    for node in lineage.nodes:
        told = [line for line in lines if f"{node.recipe_id[:12]}  {node.place}" in line]
        assert told, node
    for parent, child in lineage.edges:
        at = next(
            i
            for i, line in enumerate(lines)
            if f"{child[:12]}  candidate" in line or line.startswith(child[:12])
        )
        assert any(parent[:12] in line for line in lines[at + 1 :])


def test_a_lineage_draws_as_svg(home: Home) -> None:
    """A box a node, a line an edge, nothing outside of the picture; names are escaped."""
    lineage = Run("whole", home).lineage()
    root = ElementTree.fromstring(lineage._repr_svg_())
    space = {"s": "http://www.w3.org/2000/svg"}
    boxes = root.findall(".//s:rect", space)
    assert len(boxes) == len(lineage.nodes)
    assert len(root.findall(".//s:path", space)) == len(lineage.edges)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in boxes:
        assert 0 <= float(box.attrib["x"]) <= width - float(box.attrib["width"])
        assert 0 <= float(box.attrib["y"]) <= height - float(box.attrib["height"])
    odd = notebook.FamilyTree((notebook.FamilyNode("a" * 64, "given", "<script>&", 0),), ())
    assert "<script>" not in odd._repr_svg_()


def test_refresh_reads_what_has_happened_since(tmp_path: Path) -> None:
    place = Home(tmp_path)
    with closing(place.open_store()) as store:
        fake_runs.submit(store, "r")
        run = Run("r", place)
        fake_runs.finish(store, "r")
    assert run.status == "submitted"
    assert run.refresh() is run
    assert run.status == "completed"
    assert len(run.frame("events")) == len(run.rows)
    assert run.report()["status"] == "completed"
