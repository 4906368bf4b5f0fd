"""The wheel and the source distribution: what they bring, what they weigh, and that they run elsewhere.

Nothing is downloaded: the fresh environment sees the packages of this one, and not our sources.
"""

from __future__ import annotations

import base64
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import urllib.request
import venv
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from packaging.requirements import Requirement

from agent_forge.runs.system import build
from testing.house_counts import PRODUCT, files
from testing.models.toys import Toys

ROOT = Path(__file__).resolve().parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SITE = ROOT / "api" / "site"
#: Bytes of the wheel, at most. Today: 3.5 million, of which the shipped text has most.
WHEEL = 4_000_000
#: What starts quickly → modules that it may import, at most. Today: 116, 82 and 10.
QUICK = {
    "from agent_forge.cli.main import forge; forge(['--version'], prog_name='forge')": 140,
    "from agent_forge.cli.main import forge; forge(['--help'], prog_name='forge')": 90,
    "import agent_forge": 20,
}
#: Packages that none of them may import.
HEAVY = {"torch", "transformers", "numpy", "pydantic", "sqlmodel", "sqlalchemy", "matplotlib"}
#: Requirements of an extra for users, at most.
EXTRA = 2
COMMIT = "0123456789ab"


def elsewhere(**env: str) -> dict[str, str]:
    """The environment of a process that knows nothing of this checkout."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "FORGE_HOME")}
    return {**kept, **env}


def run(*words: str, cwd: Path, **env: str) -> str:
    """The output of such a process."""
    done = subprocess.run(words, cwd=cwd, env=elsewhere(**env), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def built(source: Path, what: str, out: Path, **env: str) -> Path:
    """Build with setuptools from a source folder: "wheel" or "sdist"."""
    out.mkdir(parents=True, exist_ok=True)
    code = f"from setuptools import build_meta as b; print(b.build_{what}({str(out)!r}))"
    return out / run(sys.executable, "-c", code, cwd=source, **env).splitlines()[-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(the source distribution of a copy of the tree, the wheel that is built of it)."""
    folder = tmp_path_factory.mktemp("packaging")
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "build", "dist", "node_modules", "tests")
    shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)  # as a checkout has them
    source = built(tree, "sdist", folder / "out", FORGE_COMMIT=COMMIT)
    with tarfile.open(source) as packed:
        packed.extractall(folder, filter="data")
    (unpacked,) = folder.glob("agent_forge-*")
    return source, built(unpacked, "wheel", folder / "out")


@pytest.mark.slow
def test_the_wheel_has_every_module_and_the_page_and_is_small(made: tuple[Path, Path]) -> None:
    """Also of the source distribution: what a file list forgets is missing only for users."""
    _, wheel = made
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {file.relative_to(ROOT) for file in files(*PRODUCT)}
    inside = {m if m.parts[0] == "agent_forge" else "agent_forge" / m for m in modules}
    assert {str(module) for module in inside} <= names
    shipped = {"api/site/index.html", "api/site/BUILD.json", "runs/system/build.json"}
    shipped |= {"evaluation/data/builtin/library.jsonl.gz"}
    assert {f"agent_forge/{name}" for name in shipped} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"agent_forge", f"agent_forge-{PROJECT['version']}.dist-info"}, "nothing else"
    assert wheel.stat().st_size < WHEEL


@pytest.fixture(scope="module")
def installed(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel."""
    place = tmp_path_factory.mktemp("installed") / "env"
    venv.create(place, with_pip=False)
    python = str(place / "bin" / "python")
    install = ["-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index"]
    run(sys.executable, *install, str(made[1]), cwd=place)
    (site,) = place.glob("lib/python*/site-packages")
    shared = sysconfig.get_paths()["purelib"]
    (site / "zz-shared.pth").write_text(shared + "\n")  # after our own: paths, no editable hooks
    return place


@pytest.mark.slow
def test_a_fresh_environment_has_forge_and_the_settings_of_the_docs(
    installed: Path, tmp_path: Path
) -> None:
    python, forge = str(installed / "bin" / "python"), str(installed / "bin" / "forge")
    home = {"FORGE_HOME": str(tmp_path / "home")}
    told = run(forge, "--version", cwd=tmp_path, **home)
    assert told == f"forge, version {PROJECT['version']} (commit {COMMIT})\n"
    where = run(python, "-c", "from agent_forge import api, cli; print(api.__file__)", cwd=tmp_path)
    assert where.startswith(str(installed))
    settings = json.loads(run(forge, "settings", "--json", cwd=tmp_path, **home))
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    names = [one["name"] for one in settings]
    assert len(names) > 50
    assert all(f"\n| `{name}` |" in page for name in names)
    assert json.loads(run(forge, "runs", "--json", cwd=tmp_path, **home)) == []
    assert "complete" in run(forge, "completion", "bash", cwd=tmp_path, **home)


@pytest.mark.slow
def test_the_installed_wheel_serves_the_page_and_its_scripts(installed: Path, tmp_path: Path) -> None:
    """Byte for byte those of the repository; a page without its scripts is empty."""
    words = [str(installed / "bin" / "forge"), "serve", "--port", "0"]
    env = elsewhere(FORGE_HOME=str(tmp_path / "home"))
    with subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as served:
        try:
            assert served.stderr is not None
            told = next((line for line in served.stderr if line.startswith("dashboard ")), "")
            address = told.removeprefix("dashboard ").strip()
            assert address, "it has ended"
            page = urllib.request.urlopen(address).read().decode()
            assert page == (SITE / "index.html").read_text("utf-8")
            assets = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page)
            assert {Path(name).suffix for name in assets} == {".js", ".css"}
            for name in assets:
                found = urllib.request.urlopen(urljoin(address, name)).read()
                assert found == (SITE / name).read_bytes()
        finally:
            served.terminate()


@pytest.mark.slow
def test_the_documents_imports_work_in_a_checkout(installed: Path) -> None:
    """Every `from … import` of ours in the examples, word for word; `agent_forge` is installed."""
    text = (ROOT / "tests/integration/agent_forge/documents.toml").read_text("utf-8")
    ours = sorted(set(re.findall(r"^\s*(from (?:agent_forge|phases)\b.* import .*)$", text, re.M)))
    for module in ("phases.phase2.evomerge", "agent_forge.phases.phase2_evomerge"):
        assert any(line.startswith(f"from {module} import ") for line in ours)
    code = "\n".join(ours)
    for python in (sys.executable, str(installed / "bin" / "python")):
        run(python, "-c", code, cwd=ROOT)


@pytest.mark.slow
def test_files_with_the_names_of_our_rooms_are_not_imported(
    installed: Path, tmp_path: Path, toys: Toys
) -> None:
    """A user's `events.py` beside a script has nothing to do with ours, also in child processes."""
    for room in PRODUCT:
        if room != "agent_forge":
            (tmp_path / f"{room}.py").write_text("raise SystemExit('the wrong module')\n")
            (tmp_path / room).mkdir()
            (tmp_path / room / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    (tmp_path / "script.py").write_text(
        "import agent_forge as forge\n"
        "if __name__ == '__main__':\n"
        "    for name in forge.__all__:\n"
        "        getattr(forge, name)\n"
        f"    print(forge.score({str(toys.base)!r}, data=[{str(toys.data)!r}]))\n"
    )
    env = {"FORGE_HOME": str(tmp_path / "home")}
    python, forge = str(installed / "bin" / "python"), str(installed / "bin" / "forge")
    assert "perplexity" in run(python, "script.py", cwd=tmp_path, **env)
    for command in ("doctor", "runs"):
        run(forge, command, cwd=tmp_path, **env)


@pytest.mark.parametrize("code", QUICK)
def test_what_starts_quickly_imports_little(code: str) -> None:
    """Counted, because a time says more of the machine: `forge --help` has 0.15 s beyond Python."""
    bound = QUICK[code]
    counted = (
        "import atexit, sys\n"
        "before = set(sys.modules)\n"
        "def say():\n"
        "    new = set(sys.modules) - before\n"
        "    print(len(new), *sorted({n.partition('.')[0] for n in new}), file=sys.stderr)\n"
        "atexit.register(say)\n"
        f"{code}\n"
    )
    done = subprocess.run([sys.executable, "-c", counted], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, *names = done.stderr.split()
    assert int(count) <= bound, names
    assert not HEAVY & set(names)


def test_extras_are_small_and_bring_what_the_core_lacks() -> None:
    core = {Requirement(text).name for text in PROJECT["dependencies"]}
    extras = PROJECT["optional-dependencies"]
    for name, texts in extras.items():
        if name in ("dev", "docs"):
            continue
        wanted = {Requirement(text).name for text in texts}
        assert len(wanted) <= EXTRA, name
        assert not wanted & core, name
    tested = {Requirement(text).name for text in extras["dev"]}
    # Stores and generators that tests stand in for, and a module that an oracle test compares with.
    untested = {"s3fs", "gcsfs", "reasoning-gym", "titans-pytorch"}
    users = {Requirement(t).name for n in extras if n not in ("dev", "docs") for t in extras[n]}
    assert users - untested <= tested


def test_every_extra_that_is_named_exists() -> None:
    """With one that does not, pip only warns, and what was asked for is missing later."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    pages += [*(ROOT / "examples").glob("*.ipynb"), ROOT / "docker-compose.yml"]
    named = set()
    for file in (*pages, *files(*PRODUCT)):
        text = file.read_text("utf-8")
        for names in re.findall(r"'\.\[([\w,-]+)\]", text):
            named |= set(names.split(","))
    assert "up" in named, "the docs are read"
    assert named - set(PROJECT["optional-dependencies"]) == set()


def test_a_checkout_says_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return run("git", *identity, *words, cwd=tmp_path).strip()

    assert build.of_checkout(tmp_path) is None
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    assert build.of_checkout(tmp_path) is None, "no commit yet"
    git("commit", "-q", "-m", "one")
    commit = git("rev-parse", "--short=12", "HEAD")
    assert build.of_checkout(tmp_path) == commit
    (tmp_path / "a").write_text("2")
    assert build.of_checkout(tmp_path) == f"{commit}+changes"


def test_the_version_is_told_without_a_commit_if_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "commit", lambda: None)
    assert build.sentence() == PROJECT["version"]
    monkeypatch.setattr(build, "commit", lambda: COMMIT)
    assert build.sentence() == f"{PROJECT['version']} (commit {COMMIT})"


@pytest.fixture(scope="module")
def bill() -> Callable[[], str]:
    """The function of docs/sbom.py that makes the bill of materials."""
    return runpy.run_path(str(ROOT / "docs" / "sbom.py"))["bill"]


def test_the_bill_of_materials_lists_what_the_image_installs(bill: Callable[[], str]) -> None:
    """Every pin of the lock with all of its hashes, and torch; twice the same bytes."""
    text = bill()
    assert text == bill()
    told = json.loads(text)
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock, re.MULTILINE))
    torch = re.findall(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    parts = [one for one in told["components"] if one["purl"].startswith("pkg:pypi/")]
    found = {one["name"]: one["version"] for one in parts}
    assert found == {**pins, "torch": torch[0]}
    assert hashes(parts) == set(re.findall(r"sha256:([0-9a-f]{64})", lock))
    root = told["metadata"]["component"]
    assert (root["name"], root["version"]) == (PROJECT["name"], PROJECT["version"])


def hashes(components: list[dict[str, Any]]) -> set[str]:
    """The hashes of components' files."""
    return {
        item["content"]
        for one in components
        for reference in one["externalReferences"]
        for item in reference.get("hashes", ())
    }


def test_the_bill_of_materials_lists_the_packages_in_the_built_page(bill: Callable[[], str]) -> None:
    """Wheel and image bring them; the page's notice of licences has the same packages."""
    parts = [one for one in json.loads(bill())["components"] if "pypi" not in one["purl"]]
    notice = (SITE / "NOTICE.txt").read_text("utf-8")
    noted = re.findall(r"^(@?[a-z][\w./-]*) ([\d.]+) \(([\w.-]+)\)$", notice, re.MULTILINE)
    found = [(one["purl"], one["licenses"][0]["license"]["id"]) for one in parts]
    assert found == [
        (f"pkg:npm/{name.replace('@', '%40')}@{version}", licence) for name, version, licence in noted
    ]
    locked = json.loads((ROOT / "dashboard" / "package-lock.json").read_text("utf-8"))["packages"]
    used = set(locked[""]["dependencies"])
    assert used <= {name for name, _, _ in noted}
    integrity = {locked[f"node_modules/{name}"]["integrity"] for name, _, _ in noted}
    told = {base64.b64encode(bytes.fromhex(one)).decode() for one in hashes(parts)}
    assert {f"sha512-{one}" for one in told} == integrity


def test_the_bill_of_materials_is_valid_by_its_schema(bill: Callable[[], str]) -> None:
    from cyclonedx.schema import SchemaVersion

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its own, of jsonschema
        from cyclonedx.validation.json import JsonStrictValidator

        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill()) is None


def test_the_upgrade_notes_cover_this_version() -> None:
    notes = (ROOT / "docs" / "operations.md").read_text("utf-8").partition("\n## Upgrading\n")[2]
    assert f"\n### {PROJECT['version']}\n" in notes.partition("\n## ")[0]
