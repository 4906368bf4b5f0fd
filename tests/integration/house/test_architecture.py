"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

#: Package → the packages of ours that it may import.
ALLOWED: dict[str, set[str]] = {
    "events": set(),
    "runs": {"events"},
    "weights": {"runs", "events"},
    "evaluation": {"weights", "runs", "events"},
    "search": {"weights", "runs", "events"},
    "tools": {"evaluation", "weights", "runs", "events"},
    "studies": {"evaluation", "weights", "runs", "events"},
    "evomerge": {"search", "studies", "evaluation", "weights", "runs", "events"},
    "phases": {"search", "tools", "studies", "evaluation", "weights", "runs", "events"},
    "pipeline": {"studies", "evaluation", "weights", "runs", "events"},
    "worker": {"studies", "evaluation", "weights", "runs", "events"},
    "agent_forge": {
        "worker",
        "evomerge",
        "pipeline",
        "studies",
        "evaluation",
        "weights",
        "runs",
        "events",
    },
    "api": {"worker", "studies", "evaluation", "weights", "runs", "events"},
    "cli": {
        "worker",
        "phases",
        "pipeline",
        "evomerge",
        "studies",
        "evaluation",
        "weights",
        "runs",
        "events",
        "agent_forge",
        "api",
    },
}

#: Rooms that must not load torch, whatever they import; and single modules of other rooms.
PURE = [
    "agent_forge.events",
    "agent_forge.runs",
    "agent_forge.evaluation.data",
    "agent_forge.search",
    "agent_forge.evaluation.verifiers",
    "agent_forge.evomerge.config",
    "agent_forge.evomerge.recipes",
    "agent_forge.evomerge.fitness",
    "agent_forge.evomerge.search",
    "agent_forge.evomerge.run",
    "agent_forge.evomerge.reports",
    "agent_forge.pipeline",
    "agent_forge.weights.recipes",
    "agent_forge.weights.operations",
    "agent_forge.weights.training",
    "agent_forge.worker.exports.wandb",
    "agent_forge.worker.exports.wandb_follower",
    "agent_forge.worker.exports.parquet",
    "agent_forge.worker.queue.leases",
    "agent_forge.worker.tasks.runner",
    "agent_forge.worker.devices.service",
    "agent_forge.worker.exports.archive",
    "agent_forge.weights.storage.weight_cache",
    "agent_forge.api.app",
    "agent_forge.api.mcp.server",
    "agent_forge.cli.runs.carry_on",
]


def _imports(file: Path) -> set[str]:
    """The packages of ours, and the others, that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {_package(name) for name in names}


def _package(module: str) -> str:
    """`events` of `agent_forge.events.store`; `agent_forge` of what that package has itself."""
    top, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    return room if top == "agent_forge" and room in ALLOWED else top


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_one_way_only(package: str) -> None:
    """A floor that imports the one above it makes every change travel."""
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for file in files:
        ours = _imports(file) & (set(ALLOWED) - {package})
        assert ours <= ALLOWED[package], f"{file} imports {ours - ALLOWED[package]}"


#: Packages of kinds of run, and the folders of `cli` that may know them.
KINDS = {"evomerge", "phases", "pipeline"}
FRONTS = {"evomerge": "evomerge", "phases": "phases", "pipeline": "pipeline"}


def kinds_imported(root: Path) -> list[str]:
    """Return the files of worker, api and cli that import a kind of run, and may not."""
    found = []
    for package in ("worker", "api", "cli"):
        for file in sorted((root / package).rglob("*.py")):
            room = file.relative_to(root / package).parts[0] if package == "cli" else ""
            wrong = _imports(file) & KINDS - {FRONTS.get(room.removesuffix(".py"))}
            found += [f"{file.relative_to(root)} imports {name}" for name in sorted(wrong)]
    return found


def test_kinds_of_run_are_reached_through_the_table_alone() -> None:
    """What is generic must serve a kind that it does not know: `tests/integration/kinds` has one."""
    assert kinds_imported(ROOT) == []


def test_generic_commands_import_no_command_of_a_kind() -> None:
    """They reach what a kind shows through `cli.kind_views`, by name."""
    modules = _modules()
    for file in sorted((ROOT / "cli").glob("*.py")):
        kinds = [
            n
            for n in _needs(file, modules)
            if n.startswith(("agent_forge.cli.evomerge", "agent_forge.cli.phases"))
        ]
        assert not kinds, f"{file.name} imports {kinds}"


def test_the_check_of_kinds_can_fail(tmp_path: Path) -> None:
    """Imports inside of functions count, and each folder may know its own kind only."""
    for name, text in {
        "worker/a.py": "def f():\n    from agent_forge.evomerge.run import state\n",
        "api/b.py": "from agent_forge import runs\n",
        "cli/c.py": "import agent_forge.phases.cognate\n",
        "cli/evomerge/d.py": "from agent_forge import evomerge, phases\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    assert kinds_imported(tmp_path) == [
        "worker/a.py imports evomerge",
        "cli/c.py imports phases",
        "cli/evomerge/d.py imports phases",
    ]


def _modules() -> dict[str, Path]:
    """Every module of ours by its dotted name; a package by its own."""
    found = {}
    for package in ALLOWED:
        for file in (ROOT / package).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            whole = name if package == "agent_forge" else f"agent_forge.{name}"
            found[whole.removesuffix(".__init__")] = file
    return found


def _needs(file: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports, also those inside its functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules else node.module)
    return found


def _child(module: str, package: str) -> str:
    """The file or the room of `package` that a module is or lies in; empty if in none."""
    if not module.startswith(f"{package}."):
        return ""
    return module.removeprefix(f"{package}.").partition(".")[0]


def test_rooms_and_files_form_no_circle() -> None:
    """What is imported in a circle can be understood, and moved, only as a whole."""
    modules = _modules()
    needs = {name: _needs(file, modules) for name, file in modules.items()}
    packages = [name for name, file in modules.items() if file.name == "__init__.py"]
    for package in packages:
        arrows: dict[str, set[str]] = {}
        for name, needed in needs.items():
            if (own := _child(name, package)) and name not in packages:
                others = {_child(other, package) for other in needed} - {own, ""}
                arrows.setdefault(own, set()).update(others)
        try:
            list(TopologicalSorter(arrows).static_order())
        except CycleError as error:
            pytest.fail(f"{package}: {' ← '.join(error.args[1])}")


def _loaded(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


@pytest.mark.slow
@pytest.mark.parametrize("module", PURE)
def test_the_pure_part_does_not_load_torch(module: str) -> None:
    """Reading a log, deciding and listing must not cost a second of imports."""
    assert not _loaded(f"import {module}") & {"torch", "transformers"}


def test_a_log_on_sqlite_is_opened_without_psycopg(tmp_path: Path) -> None:
    """Who has no PostgreSQL must not pay for its driver, nor need the library that it loads."""
    statement = (
        f"from agent_forge.runs.home import Home\nHome.at({str(tmp_path)!r}).open_store().close()"
    )
    assert "psycopg" not in _loaded(statement)


def test_help_loads_neither_torch_nor_sqlmodel() -> None:
    """`forge --help` must answer at once."""
    statement = (
        "import sys; sys.argv = ['forge', '--help']\n"
        "from agent_forge.cli.main import forge\n"
        "forge(['--help'], standalone_mode=False)"
    )
    slow = {"torch", "sqlmodel", "sqlalchemy", "pydantic", "transformers", "numpy"}
    assert not _loaded(statement) & slow


def test_modules_and_functions_stay_small() -> None:
    """A file is cut when it has two subjects or two readers; beyond 600 lines it has."""
    long_modules, long_functions = [], []
    for package in ALLOWED:
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text("utf-8")
            if text.count("\n") > 600:
                long_modules.append(file.name)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    length = (node.end_lineno or 0) - node.lineno + 1
                    if length > 50:
                        long_functions.append(f"{file.name}:{node.name} {length}")
    assert not long_modules
    assert not long_functions


@pytest.mark.slow
def test_nothing_unpickles_and_nothing_trusts_remote_code() -> None:
    """Both run a stranger's code."""
    for package in ALLOWED:
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text("utf-8")
            assert "pickle" not in _imports(file), file
            assert "trust_remote_code=True" not in text, file
            assert "torch.load(" not in text, file


#: The Auto classes that know our own architectures, too; and a file that goes into a model's folder,
#: where there are none of ours.
AUTO = ("weights/architectures/auto.py", "weights/architectures/auto_config.py")
ALONE = "weights/thoughts/modeling_thoughts.py"


def _auto_classes(text: str) -> set[str]:
    """Return the Auto classes that a source imports from transformers itself."""
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "transformers":
            found |= {alias.name for alias in node.names if alias.name.startswith("Auto")}
    return found


def test_auto_classes_are_those_that_know_our_architectures() -> None:
    """Others say of a model of ours that it needs trust_remote_code."""
    assert _auto_classes("from transformers import AutoConfig, Qwen2Config") == {"AutoConfig"}
    files = [file for package in ALLOWED for file in (ROOT / package).rglob("*.py")]
    names = {
        file.relative_to(ROOT).as_posix()
        for file in files
        if "Auto" in (text := file.read_text("utf-8")) and _auto_classes(text)
    }
    assert names == {*AUTO, ALONE}


def _page_files() -> dict[str, Path]:
    """Every file of the dashboard, by its path without ending."""
    source = ROOT / "dashboard" / "src"
    return {str(f.with_suffix("")): f for f in source.rglob("*.ts*")}


def test_files_of_the_dashboard_form_no_circle() -> None:
    """As in Python."""
    files = _page_files()
    arrows: dict[str, set[str]] = {}
    for name, file in files.items():
        found = re.findall(r"""(?:from |import\()["'](\.[^"']+)["']""", file.read_text("utf-8"))
        arrows[name] = {str((file.parent / one).resolve()) for one in found} & set(files)
    assert sum(map(len, arrows.values())) > 100
    try:
        list(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        pytest.fail(" ← ".join(Path(one).name for one in error.args[1]))


def test_no_two_files_differ_in_case_only() -> None:
    """Where a file system folds case, one of them hides the other."""
    names = [name.lower() for name in _page_files()]
    assert len(names) == len(set(names))
