"""The part of an audit that needs weights: make again and compare, check files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.history.audit import Finding
from studies import training_verify
from studies.making import model_files
from studies.making.events import Making
from studies.training_context import TrainingContext
from studies.training_verify import Say
from weights.storage.output_folder import TRAINED
from weights.storage.weight_cache import Artifacts


@dataclass(frozen=True)
class Verification:
    """The verification of one kind's runs."""

    context_of: type[TrainingContext[Any]]
    #: State → name → recipe of all that the run makes.
    recipes: Callable[[Any], Mapping[str, Making]]
    #: State → role → recipe of the models that may lie in folders.
    named: Callable[[Any], Mapping[str, Making]]
    #: File that marks the folder of a result.
    mark: str

    def rebuild(
        self, state: Any, cache: Artifacts, ids: Sequence[str], say: Say
    ) -> Iterator[Finding]:
        """Make models again; yield an error for each with another digest."""
        recipes = {name: one for name, one in self.recipes(state).items() if one.id in ids}
        return training_verify.rebuild(self.context_of, state, cache, recipes, say)

    def cached(self, state: Any, cache: Artifacts) -> Iterator[Finding]:
        """Yield an error for each model whose cached files have another digest."""
        return model_files.cached((made.digest for made in state.made.values()), cache)

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return the document of a model's folder, or of the folder of all; None if there is none.

        Raises DataError.
        """
        return model_files.document(folder, (self.mark, TRAINED))

    def folder(self, place: Path, document: dict[str, Any], state: Any) -> Iterator[Finding]:
        """Compare the weights in a folder with its document, and with its run if that is known."""
        made = None if state is None else {}
        if state is not None and state.started:
            recipes = self.named(state).items()
            made = {role: state.made[r.id].digest for role, r in recipes if r.id in state.made}
        return model_files.folder(place, document, made)
