"""Weights of a run's recipes on this machine: cached, or made again from the nearest snapshot.

Results are in the weight cache, by digest. Snapshots of living trainings are below the cache's folder,
by profile and recipe: the same recipe gives other bits under another profile. If there is a shared
store, other machines get the snapshots from it.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence

from agent_forge.events import failpoints
from agent_forge.runs.errors import ConfigError, SourceChangedError
from agent_forge.studies.making import making, shared_snapshots
from agent_forge.studies.making.making import Advanced, Made, MakeTask, Making, MakingState, Point
from agent_forge.studies.making.shared_snapshots import SharedSnapshots
from agent_forge.weights import operations, pieces
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Train, Transform
from agent_forge.weights.storage.weight_cache import SNAPSHOTS, Artifacts
from agent_forge.weights.tensors import Tensors, Weights
from agent_forge.weights.training.loop import Snapshot, TrainingStep
from agent_forge.weights.training.snapshots import Facts, Snapshots
from agent_forge.weights.training.team import Team, segment
from agent_forge.weights.training.windows import Ids

log = logging.getLogger(__name__)

#: Points of a segment's curve, at most.
POINTS = 100


def snapshots(cache: Artifacts, profile: str) -> Snapshots:
    """Return the `Snapshots` of a cache under `profile`, a run's profile and canary in one string."""
    return Snapshots(cache.folder / SNAPSHOTS / shared_snapshots.group(profile))


class Maker:
    """The maker of a run's recipes in this process."""

    def __init__(
        self,
        state: MakingState,
        cache: Artifacts,
        registry: Mapping[str, Making],
        config: Callable[[], Mapping[str, object]],
        streams: Callable[[], Mapping[str, Ids]],
        kept_snapshots: Snapshots,
        device: str = "cpu",
        inputs: Mapping[str, Callable[[], Tensors]] | None = None,
        team: Team = Team(),
        names: Mapping[str, str] | None = None,
        unlike: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Make the recipes of `registry` (id → recipe), with the config.json and streams of `state`.

        `inputs` opens the models that the run was given, by the ids of their `Source` recipes. The
        processes of `team` share each training. `names` (recipe id → role) and `unlike`, which returns
        how this process differs from the run's profile, are for errors.
        """
        self._state, self._cache, self._known = state, cache, registry
        self._config, self._streams = config, streams
        self._kept, self._given = kept_snapshots, inputs or {}
        self._shared = SharedSnapshots(cache.vault, kept_snapshots)
        self._device, self._team = device, team
        self._names, self._unlike = names or {}, unlike
        #: Called after every step.
        self.report: Callable[[TrainingStep], None] = lambda step: None

    # ---- weights -----------------------------------------------------------------------------

    def weights(self, recipe: Making) -> Weights:
        """Return a recipe's weights: cached, or made again and compared with what was recorded.

        Raises SourceChangedError if other weights come out than those that are recorded.
        """
        event = self._state.made.get(recipe.id)
        if event is not None and (cached_weights := self._cache.get(event.digest)) is not None:
            return cached_weights
        with pieces.undivided():
            is_training = isinstance(recipe, Train)
            weights = self._snapshot(recipe).weights if is_training else self._applied(recipe)
        if event is not None:
            self._compare(event.digest, weights, recipe.id)
            self._cache.keep(event.digest, weights, self._state.making_seconds(event.digest))
        return weights

    def _applied(self, recipe: Transform) -> Weights:
        inputs = {role: self._model(id_) for role, id_ in recipe.inputs.items()}
        return operations.apply(recipe, inputs, self._streams).weights

    def _model(self, recipe_id: str) -> Tensors:
        if recipe_id in self._given:
            return self._given[recipe_id]()
        return Tensors(self._config(), self.weights(self._known[recipe_id]))

    # ---- trainings ---------------------------------------------------------------------------

    def _snapshot(self, recipe: Train) -> Snapshot:
        """Return a training's snapshot at `recipe.upto`, trained on from the nearest kept snapshot."""
        recorded = self._state.advanced.get(recipe.stem, {})
        snapshot = self._usable(recipe, recorded)
        snapshot = self._fetched(recipe, recorded, snapshot) or snapshot
        at = snapshot.step if snapshot else recipe.first
        stops = [step for step in sorted(recorded) if at < step < recipe.upto] + [recipe.upto]
        for stop in stops if at < recipe.upto else ():
            before = snapshot.step if snapshot else recipe.first
            snapshot = self._carried(recipe.to(stop), snapshot)
            if stop in recorded:
                self._check(recorded[stop], snapshot, before)
            self._write(recipe, snapshot)
        assert snapshot is not None, "a training has at least one step"
        return snapshot

    def _usable(self, recipe: Train, recorded: Mapping[int, Advanced]) -> Snapshot | None:
        """Return the nearest kept snapshot that is as recorded, or None; remove those that are not."""
        while (snapshot := self._kept.nearest(recipe)) is not None:
            event = recorded.get(snapshot.step)
            wrong = recipe.to(snapshot.step).id
            if event is None or event.digest == digest(snapshot.weights):
                making.note(self._kept.folder / wrong, self._state.run)
                return snapshot
            log.warning("snapshot %s is not the recorded one: it is removed", wrong[:12])
            shutil.rmtree(self._kept.folder / wrong, ignore_errors=True)
        return None

    def _fetched(
        self, recipe: Train, recorded: Mapping[int, Advanced], local_snapshot: Snapshot | None
    ) -> Snapshot | None:
        """Return a recorded snapshot of the shared store that is nearer than the kept one, or None."""
        after = local_snapshot.step if local_snapshot else recipe.first
        steps = [step for step in recorded if after < step <= recipe.upto]

        def check(candidate: Snapshot) -> None:
            event = recorded[candidate.step]
            self._check(event, candidate, event.begin)

        snapshot = self._shared.fetch(recipe, steps, check)
        if snapshot is not None:
            training = recipe.to(snapshot.step)
            spent = self._spent(training) + recorded[snapshot.step].seconds
            making.note(self._kept.folder / training.id, self._state.run, spent)
        return snapshot

    def _training(self, recipe_id: str) -> Train:
        """Return the training recipe `recipe_id`, to carry on its optimiser; else raise ConfigError."""
        training = self._known.get(recipe_id)
        if not isinstance(training, Train):
            raise ConfigError(f"recipe {recipe_id[:12]} is no training: it has no optimiser to carry")
        return training

    def _carried(self, recipe: Train, before: Snapshot | None) -> Snapshot:
        """Return the snapshot at `recipe.upto`, trained on from the one before or from the start."""
        first = before.step if before else recipe.first
        if before is None and recipe.carries:
            before = self._snapshot(self._training(recipe.start))
        models = {id_: self._model(id_) for id_ in sorted(set(recipe.inputs.values()))}
        if before is None:
            start, optimiser = models.get(recipe.start) or self._model(recipe.start), None
        else:
            start, optimiser = Tensors(self._config(), before.weights), before.optimiser
        after = segment(
            recipe,
            start,
            optimiser,
            self._streams(),
            first,
            recipe.upto,
            self.report,
            inputs={role: models[id_] for role, id_ in recipe.inputs.items()},
            device=self._device,
            team=self._team,
        )
        failpoints.hit("segment-trained")
        return after

    # ---- tasks -------------------------------------------------------------------------------

    def make(self, task: MakeTask) -> Made | Advanced:
        """Do a task; return its event, once what the task made is on disk.

        Raises TrainingDivergedError naming the step, UnavailableError for a full disk.
        """
        recipe = task.recipe
        return self._advance(recipe, task.done) if isinstance(recipe, Train) else self._made(recipe)

    def _made(self, recipe: Transform) -> Made:
        began = time.monotonic()
        with pieces.divided():
            weights = self._applied(recipe)
        seconds, weights_digest = time.monotonic() - began, digest(weights)
        self._cache.keep(weights_digest, weights, seconds)
        failpoints.hit("made-kept")
        return Made(recipe_id=recipe.id, recipe=recipe, digest=weights_digest, seconds=seconds)

    def _advance(self, recipe: Train, done: int) -> Advanced:
        after = self._written(recipe, done)
        if after is None:
            before = self._snapshot(recipe.to(done)) if done > recipe.first else None
            after = self._carried(recipe, before)
        facts = self._write(recipe, after)
        failpoints.hit("snapshot-kept")
        recorded = self._state.advanced.get(recipe.stem, ())
        self._shared.put(recipe, [step for step in recorded if step < done])
        self._kept.keep_newest(recipe, {recipe.to(done).id, recipe.id})
        if recipe.upto == recipe.steps or recipe.id in self._known:  # a result
            self._cache.keep(facts.weights, after.weights, self._spent(recipe) + after.seconds)
        self._cache.shrink()
        failpoints.hit("advanced-kept")
        return Advanced(
            recipe_id=recipe.id,
            stem=recipe.stem,
            begin=done,
            step=recipe.upto,
            digest=facts.weights,
            optimiser=facts.optimiser,
            curve=curve(after, done),
            tokens=after.tokens,
            seconds=after.seconds,
        )

    def _write(self, recipe: Train, snapshot: Snapshot) -> Facts:
        """Write a snapshot, with notes of the run and of what it took to make it; return its facts."""
        facts = self._kept.write(recipe, snapshot)
        place, seconds = self._kept.folder / facts.recipe, self._spent(recipe) + snapshot.seconds
        making.note(place, self._state.run, seconds)
        return facts

    def _spent(self, recipe: Train) -> float:
        """Return the recorded seconds of a training's segments before `recipe.upto`."""
        events = self._state.advanced.get(recipe.stem, {}).values()
        return sum(event.seconds for event in events if event.step < recipe.upto)

    def _written(self, recipe: Train, done: int) -> Snapshot | None:
        """Return the task's snapshot if a process wrote it before it was killed; else None."""
        snapshot = self._kept.nearest(recipe)
        if snapshot is None or snapshot.step != recipe.upto:
            return None
        return snapshot if snapshot.step - len(snapshot.losses) == done else None

    # ---- comparison with the log -----------------------------------------------------------------

    def _check(self, recorded: Advanced, snapshot: Snapshot, before: int) -> None:
        """Raise SourceChangedError if a segment's snapshot, made again, is not the recorded one.

        Losses are compared if the segment began at the same step, `before`.
        """
        self._compare(recorded.digest, snapshot.weights, recorded.recipe_id)
        what = "the optimiser's state" if digest(snapshot.optimiser) != recorded.optimiser else ""
        if recorded.begin == before and curve(snapshot, before) != recorded.curve:
            what = "the losses"
        if what:
            raise SourceChangedError(
                f"recipe {recorded.recipe_id[:12]} made again: {what} up to step {recorded.step} are "
                "not those that the log says."
            )

    def _compare(self, expected: str, weights: Weights, recipe_id: str) -> None:
        """Raise SourceChangedError if weights do not have the recorded digest."""
        weights_digest = digest(weights)
        if weights_digest == expected:
            return
        events = self._state.made.values()
        owner = next((event.recipe_id for event in events if event.digest == weights_digest), None)
        role = self._names.get(owner, f"recipe {owner[:12]}") if owner else ""
        other = "; ".join(self._unlike())
        raise SourceChangedError(
            f"recipe {recipe_id[:12]} made again has weights {weights_digest[:12]}, the log says "
            f"{expected[:12]}."
            + (f" {weights_digest[:12]} is the digest that the log gives {role}." if role else "")
            + (f" The profile differs ({other})." if other else "")
        )


def forget(kept_snapshots: Snapshots, recipe: Train) -> None:
    """Remove the snapshots of a training that has ended."""
    for step in kept_snapshots.steps(recipe):
        shutil.rmtree(kept_snapshots.folder / recipe.to(step).id, ignore_errors=True)


def curve(snapshot: Snapshot, before: int) -> tuple[Point, ...]:
    """Return a tuple of at most 100 points of a segment: mean loss and norm of the steps up to each."""
    count = len(snapshot.losses)
    ends = sorted({-(-count * i // POINTS) for i in range(1, POINTS + 1)}) if count else []
    points: list[Point] = []
    first = 0
    for end in ends:
        if end > first:
            points.append(
                Point(
                    step=before + end,
                    loss=_mean(snapshot.losses[first:end]),
                    norm=_mean(snapshot.norms[first:end]),
                    rate=snapshot.rates[end - 1],
                )
            )
            first = end
    return tuple(points)


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)
