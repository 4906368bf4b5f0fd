"""Hooks of the build: the commit goes into the package. Everything else is in pyproject.toml."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
MODULE = HERE / "agent_forge" / "runs" / "system" / "build.py"


def stamp(package: Path) -> None:
    """Write the commit into the package of `runs.system.build`, if it is known.

    FORGE_COMMIT names it where there is no checkout, such as in an image. A source distribution
    brings the file along.
    """
    build = runpy.run_path(str(MODULE))
    target = package / build["FILE"]
    commit = os.environ.get("FORGE_COMMIT") or build["of_checkout"](HERE)
    if commit is not None:
        target.unlink(missing_ok=True)  # it may be linked to the checkout's
        target.write_text(json.dumps({"commit": commit}) + "\n", "utf-8")


class BuildPackages(build_py):
    """`build_py`, then the commit."""

    def run(self) -> None:
        """Build the packages, and stamp them unless they are linked to the checkout."""
        super().run()
        if not self.editable_mode:
            stamp(Path(self.build_lib) / "agent_forge" / "runs" / "system")


class SourceDistribution(sdist):
    """`sdist`, then the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Make the tree of the distribution, and stamp it."""
        super().make_release_tree(base_dir, files)
        stamp(Path(base_dir) / "agent_forge" / "runs" / "system")


setup(cmdclass={"build_py": BuildPackages, "sdist": SourceDistribution})
