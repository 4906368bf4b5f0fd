"""Weight cache: the weights of candidates by digest, in memory and on disk.

Memory holds weights within a budget; the disk holds only the kept ones (champion and elites), and
the snapshots of trainings, within another budget. Missing weights are rebuilt from their recipe, so
every failure here only costs time. Weights read from disk are checked against their digest; a damaged
file is removed and counts as missing. torch is loaded by the first weights, not by the cache.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import time
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from agent_forge.runs.errors import ConfigError, TamperedError, UnavailableError
from agent_forge.runs.event_types import checked
from agent_forge.runs.system import process_limits
from agent_forge.weights.tensors import Weights

if TYPE_CHECKING:
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.artifact_store import Vault
    from agent_forge.weights.storage.inputs import Supply

log = logging.getLogger(__name__)

MEMORY_BYTES = 700_000_000
DISK_BYTES = 20_000_000_000
#: File with the seconds that it took to make the weights beside it.
COST = "seconds.txt"
#: Folder of the snapshots of trainings, by profile, then by recipe.
SNAPSHOTS = "snapshots"
#: File in a snapshot's folder if no run goes on with it.
ENDED = "ended"
#: Seconds after its last use during which a snapshot is not removed.
LATELY = 3600


def size(weights: Weights) -> int:
    """Return the total bytes of all tensors."""
    return sum(t.numel() * t.element_size() for t in weights.values())


class Artifacts:
    """The weight cache of one process, on a folder that several processes share."""

    def __init__(
        self,
        folder: Path,
        memory_bytes: int = MEMORY_BYTES,
        disk_bytes: int = DISK_BYTES,
        vault: Vault | None = None,
        home: Home | None = None,
    ) -> None:
        self.folder = folder
        #: The home of the cache; None: not known.
        self.home = home
        #: The store shared with machines that do not have this disk.
        self._vault = vault
        self._memory_bytes = memory_bytes
        self._disk_bytes = disk_bytes
        self._memory: OrderedDict[str, Weights] = OrderedDict()
        self.hits = self.misses = 0

    @classmethod
    def of(cls, home: Home) -> Artifacts:
        """Return a home's Artifacts, with any shared store of the environment. Raises ConfigError."""
        if home.store is None:
            return cls(home.artifacts, home=home)
        from agent_forge.weights.storage.artifact_store import open_vault

        return cls(home.artifacts, vault=open_vault(home), home=home)

    @property
    def vault(self) -> Vault | None:
        """The store shared with machines that do not have this disk; None if there is no store."""
        return self._vault

    @cached_property
    def supply(self) -> Supply:
        """The inputs of runs on this machine."""
        from agent_forge.weights.storage.inputs import Supply

        return Supply(self.folder / "supply", self._vault, self)

    def get(self, digest_: str) -> Weights | None:
        """Return the weights with this digest, from memory, disk or store; None if all lack them."""
        weights = self._memory.get(digest_)
        if weights is None:
            weights = self._read(digest_)
        if weights is None and self._fetched(digest_):
            weights = self._read(digest_)
        if weights is None:
            self.misses += 1
            return None
        self.hits += 1
        self.put(digest_, weights)
        return weights

    def in_memory(self, digest_: str) -> Weights | None:
        """Return the weights with this digest if they are in memory, else None."""
        return self._memory.get(digest_)

    def put(self, digest_: str, weights: Weights) -> None:
        """Keep weights in memory; drop the least recently used weights beyond the budget."""
        self._memory[digest_] = weights
        self._memory.move_to_end(digest_)
        while len(self._memory) > 1 and sum(map(size, self._memory.values())) > self._memory_bytes:
            self._memory.popitem(last=False)

    def release(self) -> None:
        """Drop all weights in memory, and return free memory to the system, the buffer pool's, too.

        Otherwise the buffer pool keeps the memory of dropped weights for the next ones.
        """
        from agent_forge.weights import buffer_pool

        self._memory.clear()
        gc.collect()
        buffer_pool.drop()
        process_limits.give_back()

    def keep(self, digest_: str, weights: Weights, seconds: float = 0.0) -> None:
        """Write weights to disk unless they are there, and into the shared store.

        `seconds` is the time to make them again; weights that are cheap for their size are removed
        first. A full disk only leads to a warning, because the weights can be rebuilt.
        """
        from agent_forge.weights.folders import safetensors_places
        from agent_forge.weights.folders.checkpoint import SHARD_BYTES, publish

        place = self._place(digest_)
        if place.exists():
            return

        def fill(folder: Path) -> None:
            safetensors_places.write(folder, weights, SHARD_BYTES)
            if seconds:
                (folder / COST).write_text(f"{seconds}\n", "utf-8")

        try:
            publish(place, fill)
            if self._vault is not None:
                self._vault.put_folder(digest_, place)
        except (UnavailableError, ConfigError) as error:
            log.warning("the weights cache is not written: %s", error)
        self.shrink(place)

    def _fetched(self, digest_: str) -> bool:
        """Fetch weights from the shared store to disk; return True if the store had them.

        It removes a damaged artifact from the store, and the weights are built again.
        """
        if self._vault is None:
            return False
        try:
            return self._vault.fetch(digest_, self._place(digest_))
        except TamperedError as error:
            log.warning("%s It is removed, and built again.", error)
            self._vault.remove(digest_)
        except (UnavailableError, ConfigError) as error:
            log.warning("the shared store is not used: %s", error)
        return False

    def _place(self, digest_: str) -> Path:
        return self.folder / digest_[:2] / checked(digest_)

    def check(self, digest_: str) -> bool | None:
        """Return True if the weights on disk have this digest, False if not; None if there are none."""
        place = self._place(digest_)
        return read_weights(place, digest_) is not None if place.exists() else None

    def files(self, digest_: str) -> list[Path]:
        """Return the sorted paths of the weight files on disk under this digest."""
        return sorted(self._place(digest_).glob("*.safetensors"))

    def adopt(self, folder: Path, seconds: float = 0.0) -> bool:
        """Copy a folder of weights, whose name is their digest, into the cache; return True if done.

        `seconds` is the time to make them again, if the folder does not have it. False: the weights do
        not have this digest. Raises UnavailableError if the cache cannot be written.
        """
        weights = read_weights(folder, folder.name)
        if weights is None:
            log.warning("weights %s are not what their name says: left out", folder.name[:12])
            return False
        self.keep(folder.name, weights, _seconds(folder) or seconds)
        if not self._place(folder.name).exists():
            raise UnavailableError(
                f"the weights cannot be kept in {self.folder}. Nothing was imported; free space, or "
                "set FORGE_HOME to a folder that you can write to."
            )
        return True

    def _read(self, digest_: str) -> Weights | None:
        place = self._place(digest_)
        weights = read_weights(place, digest_)
        if weights is not None:
            with contextlib.suppress(OSError):
                os.utime(place)
            return weights
        if place.exists():
            log.warning("cached weights %s are damaged: removed, they are rebuilt", digest_[:12])
            shutil.rmtree(place, ignore_errors=True)
        return None

    def shrink(self, spared: Path | None = None) -> None:
        """Remove folders, but not `spared`, until the disk budget holds.

        Snapshots of runs that do not go on come first. Then come folders by the time to make them again
        for each byte, the cheapest first, and of equally cheap ones the least recently used. Snapshots
        that were written or read within `LATELY` seconds stay.
        """
        places = [*self.folder.glob("??/*"), *self.folder.glob(f"{SNAPSHOTS}/*/*")]
        entries = sorted(filter(None, map(_measured, places)))
        total = sum(bytes_ for *_, bytes_ in entries)
        lately = time.time() - LATELY
        for needed, _, used, place, bytes_ in entries:
            if total <= self._disk_bytes:
                return
            living = place.parents[1].name == SNAPSHOTS and needed and used > lately
            if place != spared and not living:
                shutil.rmtree(place, ignore_errors=True)
                total -= bytes_


def read_weights(place: Path, digest_: str) -> Weights | None:
    """Return name → tensor of a folder's weights; None if missing, unreadable or of another digest."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from agent_forge.weights.folders.checkpoint import digest

    weights: dict = {}
    try:
        for file in sorted(place.glob("*.safetensors")):
            weights.update(load_file(file))
    except (OSError, SafetensorError) as error:
        log.warning("cached weights %s cannot be read: %s", digest_[:12], error)
        return None
    if not weights or digest(weights) != digest_:
        return None
    return {name: weights[name] for name in sorted(weights)}


def _measured(place: Path) -> tuple[bool, float, float, Path, int] | None:
    """Return (True if a run may need it, seconds to make a byte again, last use, folder, bytes).

    None for a hidden folder, or if another process just removed the folder.
    """
    try:
        if place.name.startswith(".") or not place.is_dir():
            return None
        size_ = sum(f.stat().st_size for f in place.glob("*.safetensors"))
        needed, used = not (place / ENDED).exists(), place.stat().st_mtime
        return needed, _seconds(place) / max(1, size_), used, place, size_
    except OSError:
        return None


def _seconds(place: Path) -> float:
    """Return how many seconds the making of cached weights took; 0 if that is not recorded."""
    try:
        return float((place / COST).read_text("utf-8"))
    except (OSError, ValueError):
        return 0.0
