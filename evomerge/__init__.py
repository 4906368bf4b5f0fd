"""The domain: recipes, merging, fitness, search, and the fold and decision of a run.

pure (no torch)
  config.py      settings
  keys.py        random numbers from keys
  randomness.py  the counter-based generator
  recipe.py      what a candidate is
  facts.py       the events of a run; older.py: older schemas; lineage.py: what luck may not change
  state.py       evolve: the fold
  run.py         decide: what is next
  log.py         runs and candidates in the log; streams.py: their names; archived.py: in a file
  pasts.py       runs that came only as the past of a fork
  history.py     places in a history, and where it may be cut
  audit.py       is a history what it says
  watching.py    when an evaluation may end early
  beside.py      a candidate beside another model, item by item
  verifiers/     is a generated reply right?
  sandbox/       programs of models, locked in; asking.py: processes that answer questions
  patience.py    how waiting threads wait
  tied.py        processes that end with the one that started them
  control.py     what users may ask of a run
  view.py        a run as it was, two beside each other
  projections.py tables that follow the log; listing.py: questions to them
  home.py        where the log and the cache are
  tracking.py    what an experiment tracker is sent
  tables.py      a run as tables; notebook.py: `Run`, a run to look at; drawing.py: its family
  search/        strategies
  diversity.py convergence.py report.py
numeric
  methods/       one technique a file; techniques.py: by name; pipeline.py: the eight, fused
  stretches.py   one tensor of several models, a stretch at a time
  programs.py    merges said as data, for one pass
  kernels.py     inner loops: compiled in compiled/, and in torch
  build.py       recipe → weights, in memory
  merging/       a config → a folder, out of core (see its package docstring)
  sketch.py      task vector → small sketch
  checkpoints.py model folders
  sources.py     models that fit together
  fitness/       measuring
  corpus/        built-in text (pure)
  plot.py        the report's picture
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evomerge.reports.notebook import Run

__all__ = ["Run"]


def __getattr__(name: str) -> Any:
    """A run to look at, when it is asked for: importing the package costs nothing."""
    if name == "Run":
        from evomerge.reports.notebook import Run

        return Run
    raise AttributeError(f"module 'evomerge' has no attribute {name!r}")
