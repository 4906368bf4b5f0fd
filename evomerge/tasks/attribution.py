"""Attribution of a candidate's layers to its sources, computed once and cached in the home.

`python -m evomerge.tasks.attribution RUN CANDIDATE` computes it in a process of its own, so that a
server that shows runs need not hold models.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from agent_forge.events import canonical_json
from agent_forge.events.envelope import Plain
from agent_forge.evomerge.recipes.recipe import path
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import candidates
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home


def key(state: RunState, recipe_id: str) -> str:
    """Return the cache key, a hex SHA-256 over the candidate, the base, and the sources in order."""
    assert state.started
    sources = [(s.recipe_id, s.name) for s in state.started.sources]
    text = canonical_json([recipe_id, state.started.base.recipe_id, sources])
    return hashlib.sha256(text.encode()).hexdigest()


def kept(home: Home, state: RunState, recipe_id: str) -> dict[str, object] | None:
    """Return the cached attribution (dict); None if it is missing or unreadable."""
    try:
        return json.loads(_file(home, key(state, recipe_id)).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _file(home: Home, name: str) -> Path:
    return home.folder / "makeup" / f"{name}.json"


def find(home: Home, state: RunState, recipe_id: str) -> Plain:
    """Return the attribution {candidate, sources, rows}, from the cache if possible.

    Otherwise load the candidate's weights, or build them, compute the result and cache it.
    """
    cached_attribution = kept(home, state, recipe_id)
    if cached_attribution is not None:
        return cached_attribution
    from agent_forge.evomerge.merging.attribution import makeup
    from agent_forge.evomerge.tasks.context import MergeContext
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.weights.threads import set_threads

    assert state.started
    set_threads(state.started.profile.threads)
    bench = MergeContext(state, Artifacts.of(home))
    bench.check_sources()
    taken = path(state.recipes[recipe_id], state.recipes)
    rows = makeup(bench.weights(recipe_id), bench.origin, bench.source_weights, taken)
    attribution = {
        "candidate": recipe_id,
        "sources": [source.name for source in state.started.sources],
        "rows": [asdict(row) for row in rows],
    }
    _keep(_file(home, key(state, recipe_id)), attribution)
    return attribution


def _keep(file: Path, attribution: dict[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump(attribution, out)
    os.replace(name, file)


def main(run: str, candidate: str) -> int:
    """Compute and cache an attribution; return 0, or an exit code with the reason on stderr."""
    home = Home.default()
    try:
        with closing(home.open_store()) as store:
            state = repository.load(store, run, showing=True)
        find(home, state, candidates.find(state, candidate))
    except ForgeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
