"""The pictures of docs/ are pictures of recorded runs, made by one command and shown on a page."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
assert SPEC is not None
assert SPEC.loader is not None
pictures = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = pictures  # dataclasses look their module up
SPEC.loader.exec_module(pictures)
PRESENT = {file.name for file in pictures.FOLDER.iterdir()}


def referenced() -> set[str]:
    """Return the names of the files in docs/screenshots/ that a page shows."""
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    shown = re.compile(r"!\[[^\]]*\]\((?:docs/)?screenshots/([^)]+)\)")
    return {name for page in pages for name in shown.findall(page.read_text("utf-8"))}


def test_every_picture_is_shown_and_every_shown_picture_is_there() -> None:
    """A picture on no page is not seen to be old."""
    assert referenced() == PRESENT


@pytest.mark.parametrize("log", ["demo", "speedrun"])
def test_the_command_makes_the_pictures_of_a_log_all_or_none(log: str) -> None:
    """A log's pictures are taken together: two pages never show two runs."""
    files = {name for p in pictures.PICTURES if p.log == log for name in p.files}
    assert not files & PRESENT or files <= PRESENT


def test_the_command_makes_every_picture() -> None:
    """A picture by hand would be of a run that nobody has."""
    files = [name for picture in pictures.PICTURES for name in picture.files]
    assert len(files) == len(set(files))
    assert set(files) >= PRESENT


def test_the_picture_of_the_readme_is_of_the_demo() -> None:
    """The page beside it tells the reader to look at the demo's run."""
    (name,) = re.findall(r"docs/screenshots/([^)]+)", (ROOT / "README.md").read_text("utf-8"))
    (picture,) = [p for p in pictures.PICTURES if name in p.files]
    assert picture.log == "demo"


def test_pictures_are_small() -> None:
    """They are in every clone."""
    assert not [file.name for file in pictures.FOLDER.iterdir() if file.stat().st_size > 200_000]


def test_a_rare_colour_stays_itself_in_a_smaller_picture() -> None:
    """The champion's mark is a few pixels of orange among thousands of greys and blues."""
    picture = Image.new("RGB", (256, 16))
    greys = [(v, v, min(255, v + tint)) for tint in range(16) for v in range(256)]
    picture.putdata([*greys[:-1], (224, 120, 40)])
    packed = io.BytesIO()
    picture.save(packed, "PNG")
    small = pictures.smaller(packed.getvalue())
    red, green, blue = Image.open(io.BytesIO(small)).convert("RGB").crop((255, 15, 256, 16)).tobytes()
    assert max(abs(red - 224), abs(green - 120), abs(blue - 40)) <= 8
