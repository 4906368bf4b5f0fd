"""The built dashboard is small, needs nothing from elsewhere, and was built from these sources."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SITE, DASHBOARD = ROOT / "api" / "site", ROOT / "dashboard"
BESIDE = r"(index\.html|package\.json|package-lock\.json|vite\.config\.ts|tsconfig.*\.json)"


def sources() -> list[str]:
    """What a build is made from: paths relative to dashboard/, in order."""
    under = [p for p in (DASHBOARD / "src").rglob("*") if p.is_file()]
    beside = [p for p in DASHBOARD.iterdir() if re.fullmatch(BESIDE, p.name)]
    return sorted(p.relative_to(DASHBOARD).as_posix() for p in (*under, *beside))


def test_the_built_files_belong_to_the_sources() -> None:
    """`npm run build` in dashboard/ mends it."""
    told = json.loads((SITE / "BUILD.json").read_text("utf-8"))
    found = hashlib.sha256()
    for name in sources():
        found.update(name.encode() + b"\0" + (DASHBOARD / name).read_bytes())
    assert told["files"] == sources()
    assert told["sources"] == found.hexdigest()


def test_the_built_files_are_those_that_were_built() -> None:
    """A script that was changed by hand, added or lost is found without building again."""
    told = json.loads((SITE / "BUILD.json").read_text("utf-8"))
    there = {p.relative_to(SITE).as_posix(): p for p in SITE.rglob("*") if p.is_file()}
    del there["BUILD.json"]
    assert told["built"] == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()
    }


def test_every_package_in_the_scripts_is_named_with_its_licence() -> None:
    """MIT and ISC ask that the notice goes with every copy; minifying takes the comments out.

    Every package that the sources import is in the scripts; of those behind it, only what is used.
    """
    told = json.loads((SITE / "BUILD.json").read_text("utf-8"))
    locked = json.loads((DASHBOARD / "package-lock.json").read_text("utf-8"))["packages"]
    assert set(locked[""]["dependencies"]) <= set(told["packages"])
    notice = (SITE / "NOTICE.txt").read_text("utf-8")
    parts = notice.partition("\n\n")[2].split("-" * 80)
    assert len(parts) == len(told["packages"])
    for name, part in zip(told["packages"], parts, strict=True):
        package = locked[f"node_modules/{name}"]
        assert package["license"] in ("MIT", "ISC")
        assert part.strip().startswith(f"{name} {package['version']} ({package['license']})")
        words = " ".join(part.split())
        assert re.search("Permission (to use, .* )?is hereby granted", words)
        assert "Copyright" in part


def test_all_scripts_together_are_below_250_kib_compressed() -> None:
    scripts = list((SITE / "assets").glob("*.js"))
    assert scripts
    assert sum(len(gzip.compress(p.read_bytes(), 9)) for p in scripts) < 250 * 1024


def test_the_page_takes_nothing_from_elsewhere_and_has_no_script_of_its_own() -> None:
    """What its Content-Security-Policy forbids would not run."""
    index = (SITE / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", index) == []
    for link in re.findall(r'(?:src|href)="([^"]+)"', index):
        assert link.startswith("data:") or (SITE / link).is_file(), link
    for style in (SITE / "assets").glob("*.css"):
        assert re.findall(r"url\((?!data:)|@import", style.read_text("utf-8")) == []
    for script in (SITE / "assets").glob("*.js"):
        assert re.findall(r"new Function\(|\beval\(", script.read_text("utf-8")) == []


def test_every_file_that_the_index_does_not_name_is_named_by_another() -> None:
    """Nothing is left over from an older build."""
    texts = [p.read_text("utf-8") for p in (SITE / "assets").iterdir()]
    texts.append((SITE / "index.html").read_text("utf-8"))
    for file in (SITE / "assets").iterdir():
        assert any(file.name in text for text in texts), file.name


def test_no_module_has_300_lines() -> None:
    """Except the generated one."""
    for name in sources():
        if name.endswith((".ts", ".tsx")) and name != "src/api/openapi.ts":
            assert len((DASHBOARD / name).read_text("utf-8").splitlines()) < 300, name


def test_no_two_sources_differ_in_case_only() -> None:
    """On a file system that folds case, `./Events` could find `events.ts`: endings do not count."""
    stems = [name.lower().partition(".")[0] for name in sources() if name.startswith("src/")]
    assert len(set(stems)) == len(stems)
