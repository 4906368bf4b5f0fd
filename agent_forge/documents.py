"""EvoMerge by the names of docs/documents.md: settings, checkpoints, hand-over.

    from agent_forge.phases.phase2_evomerge import EvoMerge, EvoMergeConfig   the first document
    from agent_forge.evomerge_pipeline import EvoMergePipeline, …             the second
    from phases.phase2.evomerge import EvoMerge, EvoMergeConfig               the third

The classes run the same search as `agent_forge.EvoMerge`. A setting of the documents that cannot be
honoured is left out with a warning; `agent_forge.EvoMergeConfig` refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from typing_extensions import override

from agent_forge import evolution
from agent_forge.evomerge import config as document_settings
from agent_forge.evomerge import config as evomerge_config
from agent_forge.evomerge.config import REFUSED, RENAMED
from agent_forge.evomerge.run.views import outlook
from agent_forge.evomerge.search_settings import MODELS, NAMES, having
from agent_forge.modules import handed
from agent_forge.registry import ModelRegistry
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.home import Home
from agent_forge.runs.lists import finding, queries
from agent_forge.weights.storage.model_origin import Finder

log = logging.getLogger(__name__)


class EvoMergeConfig:
    """Settings by the documents' names, which may be changed until the search begins."""

    def __init__(self, **inputs: object) -> None:
        """Store settings. Raises ConfigError for a name that neither the documents nor we know."""
        self.__dict__["_given"] = {}
        for name, value in inputs.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        names = (*evomerge_config.EvoMergeConfig.model_fields, *NAMES, *RENAMED, *REFUSED)
        if name not in names:
            raise ConfigError(f"setting {name} is not known. `forge settings evomerge` lists them.")
        self._given[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._given:
            raise AttributeError(f"setting {name!r} was not given")
        return self._given[name]

    def settings(self) -> tuple[evomerge_config.EvoMergeConfig, dict[str, str]]:
        """Return (validated settings, name → reason of settings left out). Raises ConfigError."""
        taken_settings, left = document_settings.translated(self._given)
        strategy = taken_settings.get("strategy") or _strategy(taken_settings)
        for name in [name for name in taken_settings if _own(name) in NAMES]:
            if (owners := having(_own(name))) and strategy not in owners:
                left[name] = f"strategy {strategy} has no such setting; {' and '.join(owners)} have"
                del taken_settings[name]
        if strategy == "elite-loser":
            taken_settings |= _missing_size({_own(n): value for n, value in taken_settings.items()})
        config = evomerge_config.parse({**taken_settings, "strategy": strategy})
        if config.strict:
            document_settings.refuse(left)
        return config, left


def _own(name: str) -> str:
    return RENAMED.get(name, name)


def _strategy(settings: Mapping[str, object]) -> str:
    """Return the strategy that has most of the settings: `elite-loser` or `tournament`."""
    count = {
        strategy: sum(_own(n) in MODELS[strategy].model_fields for n in settings) for strategy in MODELS
    }
    return "tournament" if count["tournament"] > count["elite-loser"] else "elite-loser"


def _missing_size(settings: dict[str, Any]) -> dict[str, object]:
    """Return {population_size or elite_size: value} if just the other is set; {} if it has no value.

    An elite has `m` mutants, and the remaining candidates merge in threes. So elites and population are
    as (3m - 1) to 2 (`evomerge.search_settings.EliteLoserSearch`).
    """
    share = 3 * settings.get("mutants_per_elite", 3) - 1
    if (
        not all(isinstance(settings.get(n, 1), int) for n in ("population_size", "elite_size"))
        or share < 1
    ):
        return {}  # what is wrong with them is said where they are parsed
    for name, other, (up, down) in (
        ("population_size", "elite_size", (2, share)),
        ("elite_size", "population_size", (share, 2)),
    ):
        if name in settings and other not in settings and settings[name] * up % down == 0:
            return {other: settings[name] * up // down}
    return {}


class EvoMerge(evolution.EvoMerge):
    """The search, with the documents' settings and `load_checkpoint`."""

    def __init__(
        self,
        config: EvoMergeConfig | evomerge_config.EvoMergeConfig | None = None,
        home: Home | str | Path | None = None,
    ) -> None:
        self._documents = config if isinstance(config, EvoMergeConfig) else None
        if config is None:  # the documents' own search
            config = EvoMergeConfig().settings()[0]
        super().__init__(None if isinstance(config, EvoMergeConfig) else config, home)

    @override
    async def evolve(  # pyright: ignore[reportIncompatibleMethodOverride]  a document's own order
        self,
        models: Sequence[object] | Mapping[str, object] = (),
        generations: int | None = None,
        *,
        base: object = None,
        data: Sequence[str | Path] = (),
        output_dir: str | Path | None = None,
    ) -> evolution.EvoMergeResult:
        """Evolve merges of `models` or of phase 1's hand-over; return the result. Raises ForgeError."""
        candidates: Sequence[Any] = handed(models, "models") if isinstance(models, Mapping) else models
        if not isinstance(generations, int | None):
            raise ConfigError(
                f"generations: give a number, not {generations!r}; a base is given as base=…"
            )
        if self._documents is not None:
            self.config, left = self._documents.settings()
            for warning in document_settings.warnings(left):
                log.warning("%s", warning)
        if generations is not None:
            self.config = self.config.model_copy(update={"generations": generations})
        return await super().evolve(candidates, base, data, output_dir)

    def load_checkpoint(self, file: str | Path) -> str:
        """Make the next `evolve()` go on from a checkpoint's generation; return the name of its run.

        The file need not exist, because every event is a checkpoint. Its name gives the generation
        (`generation_30.pt`, `…_gen_25.json`). Raises NotFoundError.
        """
        with closing(self.home.open_store()) as store:
            run, generation = outlook.meant(store, str(file))
        return self.resume(run, generation)


def load_phase1_models(
    session_id: str | None = None, home: Home | str | Path | None = None
) -> list[object]:
    """Return the specialists of a phase 1 run, or of a session of the registry, as transformers models.

    `session_id` is a session's name, or a cognate run's name or its beginning. By default it is the
    newest completed cognate run, else the newest session. Raises NotFoundError.
    """
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM

    at = Home.at(home)
    name = session_id or _newest(at)
    folders = _of_session(at, name) or _of_run(at, name)
    return [AutoModelForCausalLM.from_pretrained(f, trust_remote_code=False) for f in folders]


def _newest(home: Home) -> str:
    """Return the name of the newest completed cognate run, else of the newest session with specialists.

    Raises NotFoundError.
    """
    with closing(home.open_store()) as store:
        rows, _ = queries.page(store, 1, kind="cognate", status="completed")
    sessions = [session.name for session in ModelRegistry(home).sessions()]
    names = [*(row["run"] for row in rows), *(n for n in sessions if _of_session(home, n))]
    if not names:
        raise NotFoundError("no cognate run has completed here: `forge cognate` starts one.")
    return names[0]


def _of_session(home: Home, name: str) -> list[str]:
    """Return a list of the paths, as texts, of a session's specialists; empty without the session."""
    registry = ModelRegistry(home)
    session = next((candidate for candidate in registry.sessions() if candidate.name == name), None)
    models = [registry.model(id_) for id_ in session.models] if session else []
    return [model["path"] for model in models if model["kind"] == "specialist" and model["path"]]


def _of_run(home: Home, name: str) -> list[str]:
    """Return the paths, as texts, of the specialists of a cognate run. Raises NotFoundError."""
    with closing(home.open_store()) as store:
        state = finding.load(store, name)
    if state.kind != "cognate" or state.completed is None:
        raise NotFoundError(f"run {state.run} is {kinds.of(state.kind).title}, {state.status}.")
    find = Finder(home, log.info)
    references = [find(f"{state.run}:{r}") for r in kinds.of("cognate").results(state) if r != "base"]
    return [reference.path for reference in references if reference is not None]
