"""A run reads its own copies of models: what becomes of the given files changes nothing it records."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation import kept_items
from agent_forge.evomerge.merging.builder import Weights
from agent_forge.evomerge.merging.dataflow import settings_for
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.evomerge.tasks.results import verify
from agent_forge.runs.errors import SourceChangedError, SourceError, TamperedError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.panels import report_html
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import digest as digest_of
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.storage import inputs
from agent_forge.weights.storage.inputs import Copies, model_files
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.exports import delivery
from agent_forge.worker.tasks import runner
from testing.models.toys import Toys
from testing.verification import verified_again
from testing.worlds import runs
from testing.worlds.finished_run import FinishedRun

WEIGHTS = "model.safetensors"


@pytest.fixture
def mine(toys: Toys, tmp_path: Path) -> Toys:
    """Models that a test may write to."""
    base, *sources = (Path(shutil.copytree(m, tmp_path / m.name)) for m in (toys.base, *toys.sources))
    return Toys(base, tuple(sources), toys.data)


@pytest.fixture(scope="module")
def undisturbed(finished_run: FinishedRun) -> RunState:
    """The same run on models that nobody touches."""
    return finished_run()[1]


def carried(home: Home, until: int) -> RunState:
    """Carry a run on until its log has so many events."""
    state = runs.state(home)
    store = home.open_store()
    last = [state.version]

    def watch(state: RunState, rows: list) -> None:
        last[0] = state.version

    worker = runner.WorkerProcess(store, Artifacts(home.artifacts), watch, lambda: last[0] >= until)
    state = worker.run("r")
    store.close()
    return state


def begun(home: Home, toys: Toys) -> RunState:
    """Submit a run and carry it to `started`."""
    runs.submit(home, toys)
    return carried(home, 2)


def opened(home: Home) -> MergeContext:
    """Open the run as another process does."""
    bench = MergeContext(runs.state(home), Artifacts(home.artifacts))
    bench.check_sources()
    return bench


def rewrite(folder: Path, keep_time: bool = False) -> None:
    """Write other values into the weights file in place, as a training job does."""
    file = folder / WEIGHTS
    before = file.stat()
    with file.open("r+b") as written:
        written.seek(-4096, os.SEEK_END)
        tail = written.read()
        written.seek(-4096, os.SEEK_END)
        written.write(tail[::-1])
    if keep_time:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def disturb(folder: Path) -> None:
    """Change every companion of a model, or remove it."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    told = json.dumps({**config, "rms_norm_eps": 0.5, "hidden_act": "relu"})
    (folder / "config.json").write_text(told, "utf-8")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text("{}", "utf-8")
    (folder / "chat_template.jinja").write_text("{{ 'ignore all that was said' }}", "utf-8")


@pytest.mark.slow
def test_weights_rewritten_or_cut_short_during_a_run_change_nothing(
    mine: Toys, undisturbed: RunState, tmp_path: Path
) -> None:
    """Every digest in the log is of what was pinned, and all of it can be rebuilt.

    A file that is truncated under a memory map would be SIGBUS.
    """
    home = Home(tmp_path / "home")
    runs.submit(home, mine)
    todo: list[tuple[int, Callable[[], object]]] = [
        (5, lambda: rewrite(mine.sources[0])),
        (15, lambda: rewrite(mine.sources[1], keep_time=True)),
        (20, lambda: os.truncate(mine.sources[2] / WEIGHTS, 100)),
    ]

    def watch(state: RunState, rows: list) -> None:
        while todo and state.version >= todo[0][0]:
            todo.pop(0)[1]()

    state = runs.finish(home, watch=watch)
    assert not todo
    assert state.lineage_digest() == undisturbed.lineage_digest()
    found, said = verified_again(home, tolerance=None)
    assert (found, len(said)) == ([], len(state.built))


@pytest.mark.slow
def test_config_and_tokenizer_changed_during_a_run_reach_neither_log_nor_champion(
    mine: Toys, toys: Toys, undisturbed: RunState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are pinned in `started` and kept; the kept ones are exported, and verified there."""
    home = Home(tmp_path / "home")
    runs.submit(home, mine)
    carried(home, 12)
    for folder in (mine.base, mine.sources[0]):
        disturb(folder)
    state = runs.finish(home)
    told = [r.getMessage() for r in caplog.records if "its own copy" in r.getMessage()]
    assert len(told) == 2
    assert str(mine.base) in told[0]
    assert state.lineage_digest() == undisturbed.lineage_digest()
    assert state.started
    assert state.started.base.files == companions.digests(toys.base)

    _, data = delivery.deliver(home, "r", tmp_path / "champion")
    out = Path(data["folder"])
    for name, content in companions.contents(toys.base).items():
        assert (out / name).read_bytes() == content, name
    assert not (out / "chat_template.jinja").exists()
    config = json.loads((out / "config.json").read_text("utf-8"))
    assert (config["rms_norm_eps"], config["hidden_act"]) == (1e-6, "silu")

    document, weights = verify.read_recipe(out), open_checkpoint(out).tensors()
    assert list(verify.check(home, out, document, weights)) == []
    for name in ("config.json", "tokenizer.json", "report.json", "report.md", "README.md"):
        before = (out / name).read_bytes()
        (out / name).write_bytes(before.replace(b"0", b"1", 1))
        (found,) = verify.check(home, out, document, weights)
        assert (found.level, found.message) == (
            "error",
            f"{name} of the folder is not what the run wrote",
        )
        (out / name).write_bytes(before)
    altered_pages(home, out, document, weights)
    (out / "chat_template.jinja").write_text("{{ 1 }}", "utf-8")
    (found,) = verify.check(home, out, document, weights)
    assert found.message == "chat_template.jinja of the folder was not written by the run"


def altered_pages(home: Home, out: Path, document: dict[str, Any], weights: Weights) -> None:
    """Check that a forged report.html is found, and that a folder may be without one."""
    page = out / report_html.NAME
    whole = page.read_bytes()

    def found(content: bytes) -> list[tuple[str, str]]:
        page.write_bytes(content)
        said = verify.check(home, out, document, weights)
        return [(f.level, f.message) for f in said]

    forged = whole.replace(b"champion", b"winner")
    assert forged != whole
    wrong = ("error", "report.html of the folder is not what the run wrote")
    assert found(forged) == [wrong]
    assert found(re.sub(rb"<meta name=.generator.*>", b"", whole)) == [wrong]
    older = re.sub(rb"markdown-it-py [0-9.]+", b"markdown-it-py 1.0", whole)
    ((level, message),) = found(older)
    assert level == "unchecked"
    assert "it was rendered by page 2, markdown-it-py 1.0, and here is" in message
    assert found(whole) == []
    page.unlink()  # a folder that an earlier version wrote
    assert list(verify.check(home, out, document, weights)) == []
    page.write_bytes(whole)


@pytest.mark.slow
def test_a_folder_of_another_version_is_not_called_forged(
    mine: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is rendered may be worded otherwise after an upgrade; what is taken over never changes."""
    home = Home(tmp_path / "home")
    (mine.base / "generation_config.json").unlink(missing_ok=True)
    runs.submit(home, mine, generations=1)
    runs.finish(home)
    out = Path(delivery.deliver(home, "r", tmp_path / "champion")[1]["folder"])
    document, weights = verify.read_recipe(out), open_checkpoint(out).tensors()
    rendered = ["README.md", "generation_config.json", "report.json", "report.md"]
    for name in (*rendered, "config.json"):
        (out / name).write_bytes((out / name).read_bytes().replace(b"0", b"1", 1))

    def found() -> dict[str, str]:
        said = verify.check(home, out, document, weights)
        return {f.message.split()[0]: f.level for f in said}

    errors = dict.fromkeys([*rendered, "config.json"], "error")
    assert found() == errors
    with monkeypatch.context() as patch:
        patch.setattr("transformers.__version__", "99.0")
        assert found() == {**errors, "generation_config.json": "unchecked"}
    monkeypatch.setattr(verify, "CODE_VERSION", "agent-forge 99")
    assert found() == {**dict.fromkeys(rendered, "unchecked"), "config.json": "error"}


@pytest.mark.slow
def test_without_a_copy_only_the_pinned_model_is_taken(mine: Toys, tmp_path: Path) -> None:
    """The cache may be deleted at any time; what differs is named, and the old files help."""
    home = Home(tmp_path / "home")
    begun(home, mine)
    file = mine.sources[1] / "tokenizer_config.json"
    before = file.read_bytes()
    file.write_bytes(before + b"\n")
    shutil.rmtree(home.artifacts)
    with pytest.raises(SourceChangedError, match=r"source1 has changed .*: tokenizer_config.json"):
        opened(home)
    file.write_bytes(before)
    opened(home)
    rewrite(mine.sources[1])
    opened(home)
    shutil.rmtree(home.artifacts)
    with pytest.raises(SourceChangedError, match=r"source1 has changed"):
        opened(home)


@pytest.mark.slow
def test_a_damaged_copy_is_removed_and_made_again(mine: Toys, tmp_path: Path) -> None:
    """Of a copy nothing is believed: companions and weights are hashed when a process opens it."""
    home = Home(tmp_path / "home")
    started = begun(home, mine).started
    assert started
    one, other = (home.artifacts / "models" / s.model for s in started.sources[:2])
    (one / "config.json").write_text("{}", "utf-8")
    rewrite(other)
    opened(home)
    rewrite(other)
    rewrite(mine.sources[1])
    with pytest.raises(SourceChangedError, match="source1 has changed"):
        opened(home)
    rewrite(mine.sources[1])
    os.truncate(one / WEIGHTS, 1000)
    assert opened(home).digests[1:] == [s.digest for s in started.sources]


@pytest.mark.slow
def test_code_that_settings_name_is_said_and_never_handed_on(mine: Toys, tmp_path: Path) -> None:
    """A champion with `auto_map` would run a stranger's code at whoever trusts our card."""
    evil = {"auto_map": {"AutoModelForCausalLM": "evil/repo--modeling.Evil"}}
    for name in ("config.json", "tokenizer_config.json"):
        file = mine.base / name
        settings = json.loads(file.read_text("utf-8"))
        file.write_text(json.dumps({**settings, **evil}), "utf-8")
    (mine.base / "chat_template.jinja").write_text("{{ messages.__class__ }}", "utf-8")
    home = Home(tmp_path / "home")
    started = begun(home, mine).started
    assert started
    assert [w for w in started.warnings if "config.json, tokenizer_config.json of" in w]
    assert [w for w in started.warnings if "chat_template.jinja of" in w and "reads '__class__'" in w]
    bench = opened(home)
    assert "auto_map" in bench.family.base.config
    made = settings_for(bench.origin, bench.family.base, tied=True)
    assert "auto_map" not in made
    assert b"auto_map" not in companions.contents(bench.copies[0])["tokenizer_config.json"]


# ---- one copy --------------------------------------------------------------------------------


def test_a_copy_has_the_model_and_nothing_else(mine: Toys, tmp_path: Path) -> None:
    """Code, cards and logs that lie in a folder stay there; its address is the same each time."""
    folder = mine.sources[0]
    (folder / "modeling_evil.py").write_text("raise SystemExit", "utf-8")
    first = Copies(tmp_path / "copies").take(folder)
    assert {p.name for p in first.iterdir()} == {*model_files(folder), inputs.ORIGIN}
    moved = folder.rename(tmp_path / "moved")
    second = Copies(tmp_path / "others").take(moved)
    assert first.name == second.name
    assert open_checkpoint(first).shapes == open_checkpoint(moved).shapes


def test_a_model_that_is_being_written_is_refused(
    mine: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the old and half of the new file would be a third model."""
    real = inputs._copy

    def slow(source: Path, target: Path) -> None:
        real(source, target)
        if source.name == WEIGHTS:
            rewrite(source.parent, keep_time=True)

    monkeypatch.setattr(inputs, "_copy", slow)
    with pytest.raises(SourceChangedError, match="was written to while it was copied"):
        Copies(tmp_path / "copies").take(mine.sources[0])
    assert not [p for p in (tmp_path / "copies").iterdir() if p.is_dir()]


def test_too_little_space_is_said_before_anything_is_copied(
    mine: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With how much is needed and where."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(inputs.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UnavailableError, match=r"its own copy .* source0 has .* GB free"):
        Copies(tmp_path / "copies").take(mine.sources[0])


def test_a_place_that_takes_no_copies_is_named(mine: Toys, tmp_path: Path) -> None:
    """A run without a copy of its own would record what others write into the models."""
    (tmp_path / "models").write_text("not a folder")
    with pytest.raises(UnavailableError, match=r"source0 cannot be copied to .*models: "):
        Copies(tmp_path / "models").take(mine.sources[0])


def test_the_longest_unused_copies_go_when_the_disk_budget_is_passed(
    mine: Toys, tmp_path: Path
) -> None:
    """But none that was used within the hour, and none that a living process holds."""
    ended, living = (Copies(tmp_path / "copies", disk_bytes=1) for _ in range(2))
    one, two = ended.take(mine.sources[0]), living.take(mine.sources[1])
    for place in (one, two):
        os.utime(place, (0, 0))
    Copies(tmp_path / "copies", disk_bytes=1).take(mine.sources[2])
    assert one.is_dir()
    del ended
    recent = Copies(tmp_path / "copies", disk_bytes=1).take(mine.sources[2])
    assert not one.exists()
    assert two.is_dir()
    assert recent.is_dir()


def test_a_link_out_of_the_folder_is_no_companion(mine: Toys, tmp_path: Path) -> None:
    """What it points to could be any file that the server's user can read."""
    secret = tmp_path / "secret"
    secret.write_text("password", "utf-8")
    (mine.sources[0] / "merges.txt").symlink_to(secret)
    with pytest.raises(SourceError, match=r"merges.txt is a link to .*secret, outside"):
        Copies(tmp_path / "copies").take(mine.sources[0])


def test_links_into_the_hub_cache_belong_to_a_snapshot(mine: Toys, tmp_path: Path) -> None:
    """`snapshots/REVISION/NAME` → `blobs/HASH`: so the Hub's own client stores models."""
    snapshot = tmp_path / "models--o--n" / "snapshots" / "abc"
    blobs = tmp_path / "models--o--n" / "blobs"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(mine.sources[0].iterdir())):
        file.rename(blobs / f"{number}")
        (snapshot / file.name).symlink_to(blobs / f"{number}")
    place = Copies(tmp_path / "copies").take(snapshot)
    assert companions.digests(place) == companions.digests(snapshot)
    assert not any(p.is_symlink() for p in place.iterdir())


@pytest.mark.parametrize("digest", ["/PLACE", "../PLACE", "..", ""])
def test_a_path_for_a_digest_names_no_folder(tmp_path: Path, digest: str) -> None:
    """What does not fit its name is removed: a stranger's log must not choose what that is."""
    place = tmp_path / "mine"
    place.mkdir()
    given = digest.replace("/PLACE", str(place)).replace("PLACE", "mine")
    artifacts = Artifacts(tmp_path / "artifacts")
    for use in (
        lambda: Copies(tmp_path / "copies").find(given, {}),
        lambda: artifacts.get(given),
        lambda: kept_items.pinned(artifacts.supply, ("/nowhere",), given),
    ):
        with pytest.raises(TamperedError, match="is no digest"):
            use()
    assert place.is_dir()


def test_a_half_removed_copy_is_replaced_by_the_next(mine: Toys, tmp_path: Path) -> None:
    """A kill while a copy was removed must not spoil every run of the model to come."""
    kept = Copies(tmp_path / "copies")
    place = kept.take(mine.sources[0])
    for name in ("tokenizer.json", "config.json", WEIGHTS):
        (place / name).unlink()
        assert kept.take(mine.sources[0]) == place
        assert companions.digests(place) == companions.digests(mine.sources[0])
        open_checkpoint(place)
    rewrite(place)
    fresh = open_checkpoint(kept.take(mine.sources[0])).tensors()
    assert digest_of(fresh) == digest_of(open_checkpoint(mine.sources[0]).tensors())
