"""Sending a run from the log to Weights & Biases, once or while the run goes on.

W&B has a projection of the run; the truth is the log. The rows come from the run's kind
(`Kind.tracked`), a pure function of the events. The log is the queue: rows that W&B did not take are
sent the next time, by `forge wandb sync RUN`. A process that carries out a run never talks to W&B:
`worker/exports/wandb_follower.py` has a process of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_forge.events.envelope import Plain
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ConflictError, ForgeError, UnavailableError
from agent_forge.runs.history.run_cache import RunCache
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import tracking
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import finding
from agent_forge.runs.streams import run_of
from agent_forge.runs.system import packages
from agent_forge.weights.storage.output_folder import MARK

if TYPE_CHECKING:
    from wandb import Artifact, Run

#: Names that a tracker accepts for a run, and within the name of an artifact.
_PLAIN = re.compile(r"[\w.-]{1,100}", re.ASCII)
#: The project if neither WANDB_PROJECT nor an option names one.
PROJECT = "evomerge"
#: Seconds between two looks at the log.
POLL = 1.0
#: Settings that stop W&B's own collection, which describes the sending process, not the run.
_NOTHING_ELSE = {
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}


def identity(name: str) -> str:
    """Return the tracker's id of a run: its name if plain, else a plain form with a hash."""
    if _PLAIN.fullmatch(name):
        return name
    plain = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII)[:80]
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class WandbTarget:
    """The destination of a run: the local folder, and W&B's project and entity."""

    #: W&B writes below it, into `wandb/`.
    folder: Path
    project: str | None = None
    entity: str | None = None
    #: Write files for `wandb sync`; WANDB_MODE=offline has the same effect.
    offline: bool = False
    #: The champion's folder, if its files are to be sent with the recipe.
    model: Path | None = None

    @classmethod
    def of(cls, home: Home, **fields: Any) -> WandbTarget:
        """Return the default target, with files in WANDB_DIR or the home folder, and these `fields`."""
        return cls(Path(os.environ.get("WANDB_DIR") or home.folder), **fields)


@dataclass(frozen=True)
class UploadResult:
    """The result of sending a run."""

    run: str
    status: str
    #: Number of closed generations, and how many of them W&B did not have yet.
    generations: int
    new: int
    #: URL of the run's page, or the folder for `wandb sync`.
    place: str
    offline: bool


def client() -> None:
    """Raise UnavailableError if W&B is not installed."""
    if not packages.installed("wandb"):
        raise UnavailableError(
            f"{packages.missing('sending to W&B', 'wandb')}. Runs need it for nothing: "
            "`forge wandb sync RUN` sends an old one as well."
        )


class Sender:
    """The connection of one run to W&B."""

    def __init__(self, state: State, group: str, target: WandbTarget) -> None:
        client()
        self._target = target
        self._configured = False
        with _explained(state.run):
            import wandb

            fields = type(wandb.Settings()).model_fields
            usual = {k: v for k, v in _NOTHING_ELSE.items() if k in fields}
            settings = wandb.Settings(**usual, silent=_silent())
            mode: Any = "offline" if target.offline else wandb.setup(settings).settings.mode
            self.offline = mode in ("offline", "dryrun")
            target.folder.mkdir(parents=True, exist_ok=True)
            self._run: Run = wandb.init(
                project=target.project or os.environ.get("WANDB_PROJECT") or PROJECT,
                entity=target.entity,
                id=identity(state.run),
                name=state.run,
                group=group,
                dir=str(target.folder),
                mode=mode,
                resume=None if self.offline else "allow",
                reinit="create_new",
                settings=settings,
            )
            self._kind = kinds.of(state.kind)
            self._run.define_metric("*", step_metric=self._kind.unit)
        self._files = _Files(self._run, target.folder) if self.offline else None
        #: The newest generation that W&B has; W&B's steps are generations.
        self._newest = int(self._run.starting_step) - 1 if self._run.resumed else -1
        if self._files is not None:
            self._newest = self._files.synced()
            self._files.note(self._newest)
        self.new = 0

    def send(self, state: State) -> None:
        """Send the settings and the generations that W&B does not have yet."""
        with _explained(state.run):
            if state.started is not None and not self._configured:
                self._configure(state)
            fresh = self._kind.tracking.rows(state, self._newest)
            allowed = tracking.Allowed(self._kind, state, "row") if fresh else None
            for generation, row in fresh:
                assert allowed
                allowed.check(row)
                self._run.log(row, step=generation, commit=True)
                self._newest, self.new = generation, self.new + 1
            if fresh or state.ended:
                self._summarise(state)
            if fresh and self._files is not None:
                self._files.note(self._newest)

    def finish(self, state: State) -> UploadResult:
        """Send the champion if it is final, and finish the run at W&B; return what was sent.

        Blocks until everything is sent.
        """
        with _explained(state.run):
            if not self._configured and state.submitted is not None:
                self._configure(state)
            self._summarise(state)
            result = self._kind.tracking.result(state)
            if result is not None and state.completed is not None:
                tracking.Allowed(self._kind, state, "result").check(result["metadata"])
                self._run.log_artifact(_artifact(state, result, self._target.model))
            place = str(self._files.folder if self._files else self._run.url or "")
            self._run.finish(exit_code=1 if state.failed or state.cancelled else 0)
            if self._files is not None:
                self._files.supersede()
        return UploadResult(
            run=state.run,
            status=state.status,
            generations=self._kind.view.progress(state)[0],
            new=self.new,
            place=place,
            offline=self.offline,
        )

    def _configure(self, state: State) -> None:
        config = self._kind.tracking.config(state)
        tracking.Allowed(self._kind, state, "config").check(config)
        self._run.config.update(config, allow_val_change=True)
        self._configured = True

    def _summarise(self, state: State) -> None:
        summary = self._kind.tracking.summary(state)
        tracking.Allowed(self._kind, state, "summary").check(summary)
        self._run.summary.update(summary)

    def leave(self) -> None:
        """Close the run at W&B after an error; a further error is ignored."""
        with contextlib.suppress(Exception):
            self._run.finish(exit_code=1)


class _Files:
    """The folders of a run's offline files, each with a note of its newest generation.

    `wandb sync` appends a file to the server's data of the run. So a new file holds only the
    generations that no synced file has, and it replaces the files that were never synced: no
    generation is sent twice.
    """

    NOTE = "forge.json"

    def __init__(self, run: Run, root: Path) -> None:
        self.folder = Path(run.dir).parent
        notes = (root / "wandb").glob(f"offline-run-*-{run.id}/{self.NOTE}")
        self._earlier = sorted(note.parent for note in notes)

    def note(self, newest: int) -> None:
        """Write the newest generation that the server will have once this file is synced."""
        (self.folder / self.NOTE).write_text(json.dumps({"newest": newest}), "utf-8")

    def synced(self) -> int:
        """Return the newest generation of the synced files; −1 if no file was synced."""
        notes = [folder / self.NOTE for folder in self._earlier if _is_synced(folder)]
        return max((json.loads(note.read_text("utf-8"))["newest"] for note in notes), default=-1)

    def supersede(self) -> None:
        """Remove the earlier files that were not synced: the new file has their generations."""
        for folder in self._earlier:
            if not _is_synced(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_synced(folder: Path) -> bool:
    """Return True if `wandb sync` has marked the folder as sent."""
    return any(folder.glob("*.wandb.synced"))


def _artifact(state: State, result: Plain, model: Path | None) -> Artifact:
    """Return the result as an artifact: the files of its folder if given, else its own file."""
    import wandb

    name = f"{identity(state.run)}-{kinds.of(state.kind).result_name}"
    artifact = wandb.Artifact(name, type="model", metadata=result["metadata"])
    if model is not None:
        artifact.add_dir(str(model))
        return artifact
    with artifact.new_file(result["file"]) as file:
        file.write(json.dumps(result["content"], indent=2) + "\n")
    return artifact


def _silent() -> bool:
    """Return True unless WANDB_SILENT asks for W&B's own output."""
    return os.environ.get("WANDB_SILENT", "true").lower() in ("1", "true", "yes", "y", "t", "on")


@contextlib.contextmanager
def _explained(run: str) -> Iterator[None]:
    """Wrap a block: an error of W&B becomes an UnavailableError that says what to do."""
    try:
        yield
    except ForgeError:
        raise
    except Exception as error:  # W&B raises errors of many kinds
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise UnavailableError(
            f"W&B did not take run {run}: {why}. The run is not touched; "
            f"`forge wandb sync {run}` sends it later, with --offline into files."
        ) from error


def sync(
    home: Home,
    run: str,
    target: WandbTarget,
    follow: bool = False,
    wait: Callable[[float], bool] = lambda seconds: bool(time.sleep(seconds)),
) -> UploadResult:
    """Send a run's recorded generations, with `follow` also later ones; return what was sent.

    Following ends with the run, or when `wait(seconds)`, called between two looks at the log, returns
    True. Raises NotFoundError, ConflictError if another process here sends the run, UnavailableError.
    """
    with closing(home.open_store()) as store:
        name = finding.full_name(store, run)
        with _alone(home, name):
            runs = RunCache(store, 1, showing=True)
            state, rows = runs.refresh(name)
            _check_model(state, target.model)
            sender = Sender(state, run_of(rows[0].stream), target)
            try:
                sender.send(state)
                stopped = not follow
                while not (state.ended or stopped):
                    stopped = wait(POLL)
                    sender.send(state := runs.get(name))
                return sender.finish(state)
            except BaseException:
                sender.leave()
                raise


def _check_model(state: State, model: Path | None) -> None:
    """Raise ConfigError if the folder is not that of the run's champion."""
    if model is None:
        return
    try:
        candidate = json.loads((model / MARK).read_text("utf-8"))["candidate"]
    except (OSError, ValueError, KeyError, TypeError):
        candidate = None
    result = kinds.of(state.kind).models.result(state)
    if candidate is None or result is None or candidate != result.recipe_id or state.completed is None:
        raise ConfigError(
            f"{model} is not the folder of the champion of run {state.run}: write it with "
            f"`forge export {state.run} --out DIR`, or leave out --model."
        )


@contextlib.contextmanager
def _alone(home: Home, run: str) -> Iterator[None]:
    """Hold the lock of a run's only sender here: two would send steps twice. Raises ConflictError."""
    path = home.folder / "tracking" / f"{identity(run)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConflictError(
                f"run {run} is being sent to W&B by another process here. Wait for it to end."
            ) from error
        yield
