"""`forge` as a user meets it: output, errors, exit codes. In-process where that is the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from agent_forge.cli.main import COMMANDS, _explain, forge
from agent_forge.evomerge.run.rules import decide
from agent_forge.evomerge.run.views import outlook
from agent_forge.evomerge.settings_table import settings
from agent_forge.runs.history import audit, repository
from agent_forge.runs.home import Home
from testing.models.toys import Toys
from testing.waiting import PATIENCE, wait_until
from testing.worlds import runs
from testing.worlds.finished_run import once


def call(home: Path | Home, *words: str) -> Result:
    """`forge WORDS` with its own home."""
    folder = home.folder if isinstance(home, Home) else home
    return CliRunner(env={"FORGE_HOME": str(folder)}).invoke(forge, list(words))


def succeeds(home: Path | Home, *words: str) -> Result:
    """Return what a command says that must succeed."""
    result = call(home, *words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def fails(home: Path, code: int, *words: str) -> str:
    """The message of a command that must fail with this exit code."""
    result = call(home, *words)
    assert result.exception is not None, result.output
    if isinstance(result.exception, SystemExit):
        assert result.exit_code == code
        return result.output
    assert getattr(result.exception, "exit_code", None) == code, repr(result.exception)
    return str(result.exception)


@dataclass(frozen=True)
class Told:
    """Output of a command."""

    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def finished(
    toys: Toys, session_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Told, Path]:
    """(home, what `forge evo` printed, the champion's folder): carried out once, copied a module."""

    def carry_out(place: Path) -> None:
        settings = place.with_suffix(".toml")
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("search_windows = 3\nsearch_questions = 2\n")
        changes = ("--gens", "1", "--config", str(settings))
        out = ("--output-dir", str(place / "champion"), "--json")
        result = succeeds(place / "home", "evo", *toys.words, *changes, *out)
        told = json.dumps({"stdout": result.stdout, "stderr": result.stderr})
        (place / "told.json").write_text(told)

    made = once(session_folder / "forge-evo", carry_out)
    home = Path(shutil.copytree(made / "home", tmp_path_factory.mktemp("evo") / "home"))
    return home, Told(**json.loads((made / "told.json").read_text())), made / "champion"


def run_of(finished) -> str:
    """The run's name."""
    return json.loads(finished[1].stdout)["run"]


@pytest.mark.slow
def test_evo_prints_data_on_stdout_and_progress_on_stderr(finished) -> None:
    """So that it can be piped."""
    data = json.loads(finished[1].stdout)
    assert data["status"] == "completed"
    assert "sentence" in data["verdict"]
    assert "generation 1: best" in finished[1].stderr
    line = r"^run (forge-evo-\d{4}) \(go on .* --resume (\S+)\)$"  # called after its file
    match = re.search(line, finished[1].stderr, re.MULTILINE)
    assert match is not None
    assert match[1] == match[2]


def test_any_kind_says_what_a_run_would_cost_and_starts_nothing(toys: Toys, tmp_path: Path) -> None:
    models = ("--model", f"model={toys.base}", "--model", f"against={toys.sources[0]}")
    words = ("start", "measure", *models, "--data", str(toys.data), "--dry-run")
    told = json.loads(call(tmp_path, *words, "--json").stdout)
    assert told["time"]["value"] > 0
    assert told["memory"]["how"].startswith("measured here")
    lines = call(tmp_path, *words).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["time", "disk", "memory"]
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    assert "leave out dry-run" in fails(tmp_path, 2, "start", "--resume", "r", "--dry-run")
    assert "holds other things" in fails(tmp_path, 6, *words, "--output-dir", str(full))
    assert "leave out --detach" in fails(tmp_path, 2, *words, "--detach")
    assert call(tmp_path, "runs", "--json").stdout.strip() == "[]"


@pytest.mark.slow
def test_a_dry_run_says_what_it_would_cost_and_starts_nothing(toys: Toys, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("search_windows = 3\nsearch_questions = 2\npopulation_size = 5\n")
    changes = ("--strategy", "auto", "--gens", "2", "--config", str(settings))
    words = ["evo", "--dry-run", *toys.words, *changes]
    told = succeeds(tmp_path, *words, "--json")
    found = json.loads(told.stdout)
    assert found["generations"] == 3
    assert found["tasks"]["build"] >= 4 + 3 * 5
    assert found["total_seconds"] == pytest.approx(sum(found["seconds"].values()))
    assert found["seconds"]["scoring windows"] > 0
    assert found["seconds"]["loading"] > 0
    assert found["ended_before_by"] == []
    settings.write_text(settings.read_text() + "max_hours = 0.000001\nmax_device_hours = 9000\n")
    said = call(tmp_path, *words)
    assert "on this machine by one process" in said.stdout
    assert "max_hours would end it before that" in said.stdout
    assert "max_device_hours" not in said.stdout
    del words[words.index("--gens") : words.index("2") + 1]
    assert "the budget is too small" in call(tmp_path, *words, "--budget", "0.1s").stdout
    told = call(tmp_path, *words, "--budget", "20m", "--json")
    reached = json.loads(told.stdout)
    assert not reached["budget_too_small"]
    assert reached["ends_by"] == "hours"
    assert reached["generations"] > 40
    assert reached["total_seconds"] == pytest.approx(1200, rel=0.1)
    assert json.loads(call(tmp_path, "runs", "--json").stdout) in ([], {"runs": []})
    assert "leave out --resume" in fails(tmp_path, 2, "evo", "--dry-run", "--resume", "r")
    assert "leave out --detach" in fails(tmp_path, 2, *words, "--detach")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('strategy = "auto"\npopulation_size = 2\n', "population_size must be at least 4"),
        ('strategy = "hill"\n', "there is auto, elite-loser"),
        (
            'strategy = "nsga2"\nobjectives = ["domain/x", "accuracy"]\n',
            "objectives names the domain 'x'",
        ),
        ('strategy = "nsga2"\nobjectives = ["speed"]\n', "two things or more"),
        ('species = ["karcher"]\n', "setting species: give some of task_arithmetic"),
        ("max_items = 0\n", "setting max_items"),
    ],
)
def test_a_search_that_cannot_be_is_named_before_any_work(
    toys: Toys, tmp_path: Path, text: str, message: str
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(text)
    assert message in fails(tmp_path, 2, "evo", *toys.words, "--config", str(settings))


def test_the_champion_loads_and_scores_as_recorded(finished, toys: Toys) -> None:
    """Ten lines of transformers alone give the recorded perplexity to 1e-3."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _, result, folder = finished
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    recorded = json.loads(result.stdout)["test"]["components"]["domains"]
    for domain, perplexity in recorded.items():
        lines = (toys.data / f"{domain}.jsonl").read_text().splitlines()
        items = sorted(map(json.loads, lines), key=lambda item: item["id"])
        texts = [i["text"] for i in items if i["slice"] == "test" and "text" in i]
        ids = [t for x in texts for t in [*tokenizer.encode(x), tokenizer.eos_token_id]]
        total = count = 0
        for start in range(0, len(ids), 64):
            window = torch.tensor([ids[start : start + 64]])
            if window.shape[1] > 1:
                with torch.no_grad():
                    loss = model(input_ids=window, labels=window).loss
                total += float(loss) * (window.shape[1] - 1)
                count += window.shape[1] - 1
        mine = float(torch.tensor(total / count).exp())
        assert mine == pytest.approx(perplexity, rel=1e-3)


def test_the_champions_folder_is_what_the_ecosystem_takes(finished) -> None:
    """Weights, config, tokenizer, card, recipe, report; modes by the umask."""
    _, _, folder = finished
    names = {p.name for p in folder.iterdir()}
    assert names >= {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "README.md",
        "evomerge_recipe.json",
        "report.json",
        "report.md",
        "report.html",
        "report.svg",
        "report.png",
    }
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~_umask()
    card = (folder / "README.md").read_text()
    assert "base_model:" not in card, "the sources are folders of this machine, not models of a Hub"
    assert 'AutoModelForCausalLM.from_pretrained(".")' in card
    assert "- evomerge" in card
    document = json.loads((folder / "evomerge_recipe.json").read_text())
    assert document["candidate"] in document["recipes"]
    assert not [p for p in folder.parent.iterdir() if p.name.startswith(".champion")]


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_runs_show_events_and_lineage_read_the_log(finished) -> None:
    """Each for people and as JSON."""
    home, run = finished[0], run_of(finished)
    assert run in call(home, "runs").stdout
    assert json.loads(call(home, "runs", "--json").stdout)[0]["status"] == "completed"
    assert "champion" in call(home, "show", run).stdout
    assert json.loads(call(home, "show", run, "--json").stdout)["run"] == run
    rows = [json.loads(x) for x in call(home, "events", run, "--json").stdout.splitlines()]
    assert [r["version"] for r in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["type"] == "completed"
    assert rows[-1]["data"]["chain_head"] == rows[-2]["hash"]
    assert "completed" in call(home, "events", run).stdout
    assert "source source0" in call(home, "lineage", run).stdout
    assert len(json.loads(call(home, "lineage", run, "--json").stdout)) >= 5


def test_a_run_can_be_named_by_its_beginning(finished) -> None:
    """Nobody types twenty characters."""
    run = run_of(finished)
    assert json.loads(call(finished[0], "show", run[:-2], "--json").stdout)["run"] == run


@pytest.mark.slow
def test_export_writes_the_same_weights_again(finished, tmp_path) -> None:
    """The cache gone, the folder is rebuilt from the log and the sources."""
    home, _, folder = finished
    shutil.rmtree(home / "artifacts")
    succeeds(home, "export", run_of(finished), "--out", str(tmp_path / "again"))
    again = (tmp_path / "again" / "model.safetensors").read_bytes()
    assert again == (folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_resume_of_a_completed_run_gives_its_result(finished, tmp_path) -> None:
    """Nothing is done twice, nothing is an error."""
    out = str(tmp_path / "champion")
    result = succeeds(finished[0], "evo", "--resume", run_of(finished), "--output-dir", out, "--json")
    assert json.loads(result.stdout)["champion"] == json.loads(finished[1].stdout)["champion"]


@pytest.mark.slow
def test_check_says_what_would_be_run(toys: Toys, tmp_path) -> None:
    """In seconds, and starts nothing."""
    words = ["check", "--base-models", toys.names, "--data", str(toys.data)]
    result = succeeds(tmp_path, *words)
    assert "warning: no base model was given" in result.stderr
    assert "this can be started" in result.stdout
    assert json.loads(call(tmp_path, *words, "--json").stdout)["ok"] is True
    assert not (tmp_path / "forge.db").exists()


def test_doctor_finds_this_machine_fit(tmp_path) -> None:
    """Exit code 0 and a line for each thing looked at."""
    result = succeeds(tmp_path, "doctor")
    for what in ("torch", "home", "free disk", "sqlite", "log"):
        assert what in result.stdout
    assert {f["level"] for f in json.loads(call(tmp_path, "doctor", "--json").stdout)} <= {
        "ok",
        "warning",
    }


def test_doctor_says_what_is_wrong(tmp_path) -> None:
    """A home that is a file cannot be one."""
    (tmp_path / "home").write_text("")
    result = call(tmp_path / "home", "doctor")
    assert result.exit_code == 3
    assert "FORGE_HOME" in result.stdout


BAD = [
    (("--base-model", "{0}"), "none was given"),
    (("--base-models", "{0}"), "only source0 was given"),
    (("--base-models", "{0},{0}"), "given twice"),
    (("--base-models", "{0},/no/such/folder"), "/no/such/folder does not exist"),
    (("--base-models", "{0},nonsense"), "nor an alias"),
    (("--base-models", "{0},{1}", "--data", "/no/such.jsonl"), "does not exist"),
    (("--base-models", "{0},{1}", "--config", "/no/such.toml"), "cannot be read"),
    (("--base-models", "{0},{1}", "--strategy", "magic"), "strategy"),
    (("--base-models", "{0},{1}", "--gens", "-1"), "generations"),
    (("--base-models", "{0},{1}", "--device", "tpu"), "device 'tpu' is not known"),
]


@pytest.mark.parametrize("command", ["evo", "check"])
@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_named_before_any_work(
    toys: Toys, tmp_path, command: str, words: tuple[str, ...], message: str
) -> None:
    """One clear error, exit code 2, nothing recorded, nothing written."""
    filled = [w.format(*map(str, toys.sources)) for w in words]
    home = tmp_path / "home"
    assert message in fails(home, 2, command, *filled)
    assert not home.exists()


def test_a_population_that_does_not_add_up_is_refused_with_the_arithmetic(toys: Toys, tmp_path) -> None:
    """The numbers in the message are the user's own."""
    file = tmp_path / "settings.json"
    file.write_text('{"population_size": 9, "strategy": "elite-loser"}')
    words = ("evo", "--base-models", toys.names, "--config", str(file))
    assert "2 x 3 = 6 mutants" in fails(tmp_path / "home", 2, *words)


def test_a_budget_is_the_one_dial(toys: Toys, tmp_path) -> None:
    """It alone ends the search, unless generations are given too."""
    words = ("check", "--base-models", toys.names, "--data", str(toys.data), "--json", "--budget")
    alone = json.loads(call(tmp_path / "home", *words, "2h30m").stdout)["config"]
    assert (alone["budget_hours"], alone["generations"]) == (2.5, 10_000)
    both = json.loads(call(tmp_path / "home", *words, "1h", "--gens", "7").stdout)["config"]
    assert both["generations"] == 7
    file = tmp_path / "settings.toml"
    for line in ('budget = "3h"\n', "budget_hours = 3\n"):
        file.write_text(line + "max_generations = 9\n")
        given = call(tmp_path / "home", *words, "1h", "--config", str(file))
        config = json.loads(given.stdout)["config"]
        assert (config["budget_hours"], config["generations"]) == (1.0, 9), "an option counts more"
    assert "give a time such as 30m, 1h" in fails(tmp_path / "home", 2, *words, "1")


@pytest.mark.slow
def test_a_run_with_a_budget_ends_by_it_and_writes_its_champion(toys: Toys, tmp_path: Path) -> None:
    """Nothing but the time ends it; the log alone says that the search had to end there."""
    file = tmp_path / "settings.toml"
    file.write_text(
        "search_windows = 3\nsearch_questions = 2\nconvergence_patience = 0\n"
        'budget = "8s"\n[search]\nstrategy = "auto"\npopulation_size = 5\n'
    )
    out = ("--output-dir", str(tmp_path / "champion"), "--json")
    words = ("evo", *toys.words, "--config", str(file), *out)
    told = succeeds(tmp_path / "home", *words)
    run = json.loads(told.stdout)["run"]
    assert (tmp_path / "champion" / "model.safetensors").exists()
    store = Home(tmp_path / "home").open_store()
    rows = list(repository.history(store, run))
    state = repository.load(store, run)
    store.close()
    assert state.completed
    assert state.converged.reason == "hours"
    assert audit.audit(rows) == []
    last = max(state.closed)
    then = repository.fold(rows[: outlook.before_close(rows, last)])
    again = then.spent.minus(then.closed[last - 1])
    needed = then.spent.wall + again.wall + decide.report_seconds(then)
    assert needed > 8, "it ended with time for another generation and the report"


def test_every_way_of_saying_the_settings_means_the_same(toys: Toys, tmp_path: Path) -> None:
    """Nested or flat, in TOML or JSON, by the source documents' names or as options."""
    words = ("check", "--base-models", toys.names, "--data", str(toys.data), "--json")
    files = {
        "nested.toml": 'generations = 3\n[search]\nstrategy = "tournament"\nelite_size = 1\n'
        "mutation_sigma = 0.3\n",
        "flat.toml": 'generations = 3\nstrategy = "tournament"\nelite_size = 1\nmutation_sigma = 0.3\n',
        "documents.json": '{"max_generations": 3, "strategy": "tournament", "elite_count": 1,'
        ' "mutation_strength": 0.3}',
        "mixed.yaml": "search: {strategy: tournament, elite_count: 1}\nmutation_strength: 0.3\n",
    }
    told = []
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        more = ("--gens", "3") if name == "mixed.yaml" else ()
        found = call(tmp_path / "home", *words, "--config", str(tmp_path / name), *more)
        told.append(json.loads(found.stdout)["config"])
    (tmp_path / "rest.toml").write_text("elite_count = 1\nmutation_strength = 0.3\n")
    options = ("--config", str(tmp_path / "rest.toml"), "--gens", "3", "--strategy", "tournament")
    told.append(json.loads(call(tmp_path / "home", *words, *options).stdout)["config"])
    (tmp_path / "other.toml").write_text("generations = 8\n[search]\nelite_count = 4\n")
    options = ("strategy=tournament", "elite_size=1", "mutation_sigma=0.3", "max_generations=3")
    each = [word for option in options for word in ("--set", option)]
    more = ("--config", str(tmp_path / "other.toml"))
    told.append(json.loads(call(tmp_path / "home", *words, *more, *each).stdout)["config"])
    assert told == [told[0]] * 6
    assert "leave one of both out" in fails(
        tmp_path / "home", 2, *words, "--gens", "3", "--set", "generations=4"
    )
    assert (told[0]["strategy"], told[0]["elite_size"], told[0]["mutation_sigma"]) == (
        "tournament",
        1,
        0.3,
    )


def test_an_option_overrides_the_strategy_of_a_nested_search(toys: Toys, tmp_path) -> None:
    """The rest of the file's search must suit the strategy that is asked for."""
    file = tmp_path / "settings.toml"
    file.write_text('[search]\nstrategy = "auto"\npopulation_size = 6\n')
    words = ("check", "--base-models", toys.names, "--data", str(toys.data), "--config", str(file))
    told = call(tmp_path / "home", *words, "--strategy", "cma-es", "--json")
    config = json.loads(told.stdout)["config"]
    assert (config["strategy"], config["population_size"]) == ("cma-es", 6)
    file.write_text('[search]\nstrategy = "auto"\nniching = "both"\n')
    assert "niching belongs to tournament" in fails(tmp_path / "home", 2, *words)


def test_a_config_file_may_name_models_and_data(toys: Toys, tmp_path) -> None:
    """The source documents' JSON form, with a path per model."""
    file = tmp_path / "settings.json"
    entries = [{"name": s.name, "path": str(s), "weight": 1.0} for s in toys.sources]
    file.write_text(json.dumps({"base_models": entries, "data": [str(toys.data)]}))
    succeeds(tmp_path / "home", "check", "--config", str(file))
    entries[0]["weight"] = 2.0
    file.write_text(json.dumps({"base_models": entries}))
    assert "gene" in fails(tmp_path / "home", 2, "check", "--config", str(file))


def test_an_unknown_run_is_not_found(finished) -> None:
    """Exit code 5, and the runs that there are."""
    for words in (
        ("show", "x"),
        ("events", "x"),
        ("lineage", "x"),
        ("evo", "--resume", "x"),
        ("export", "x", "--out", "y"),
    ):
        message = fails(finished[0], 5, *words)
        assert "is not known" in message
        assert "the newest runs are forge-evo-" in message


def test_an_unknown_candidate_is_not_found(finished) -> None:
    """Exit code 5."""
    assert "is not known" in fails(finished[0], 5, "lineage", run_of(finished), "zzz")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--gens", "9"], "gens"),
        (["--priority", "3", "--key", "k"], "key, priority"),
        (["--detach", "--label", "big"], "detach, label"),
        (["--set", "generations=9"], "settings"),
    ],
)
def test_settings_cannot_be_changed_at_resume(finished, options: list[str], named: str) -> None:
    """A run goes on as it was started, or its log would not explain it."""
    message = fails(finished[0], 2, "evo", "--resume", run_of(finished), *options)
    assert f"leave out {named}" in message


def test_a_home_that_cannot_be_made_is_unavailable(toys: Toys, tmp_path) -> None:
    """Exit code 3, and what to set."""
    (tmp_path / "file").write_text("")
    words = ("evo", "--base-models", toys.names, "--data", str(toys.data))
    assert "FORGE_HOME" in fails(tmp_path / "file" / "home", 3, *words)


def test_an_output_folder_that_cannot_be_written_is_found_before_work(
    toys: Toys, tmp_path, monkeypatch
) -> None:
    """Not after hours."""
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    words = ("evo", "--base-models", toys.names, "--data", str(toys.data))
    message = fails(tmp_path / "home", 3, *words, "--output-dir", str(tmp_path / "out"))
    assert "not writable" in message
    assert not (tmp_path / "home").exists()


def test_an_unfinished_run_has_no_champion_to_export(toys: Toys, tmp_path) -> None:
    """It says how to finish it."""
    runs.submit(Home(tmp_path / "home"), toys)
    message = fails(tmp_path / "home", 1, "export", "r", "--out", str(tmp_path / "out"))
    assert "forge start --resume r" in message
    assert not (tmp_path / "out").exists()
    assert "submitted" in call(tmp_path / "home", "show", "r").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, tmp_path) -> None:
    """One line, an example, and the same line in the list of commands."""
    command = forge.get_command(click.Context(forge), name)
    subcommands = list(command.commands) if isinstance(command, click.Group) else []
    for words in ([name], *([name, sub] for sub in subcommands)):
        result = call(tmp_path, *words, "--help")
        assert result.exit_code == 0
        assert "Example:" in result.output
        assert f"forge {' '.join(words)}" in result.output
        is_command = not isinstance(command, click.Group) or command.invoke_without_command
        data = name not in ("up", "worker", "serve", "mcp", "completion") and (
            is_command or words != [name]
        )
        assert ("--json" in result.output) == data


def test_errors_become_messages_and_exit_codes(capsys, monkeypatch) -> None:
    """Ours by their own code, others as a defect; a traceback only with --debug."""
    from agent_forge.runs.errors import NotFoundError

    monkeypatch.setattr(sys, "argv", ["forge"])
    assert _explain(NotFoundError("no such run")) == 5
    assert capsys.readouterr().err == "error: no such run\n"
    assert _explain(ValueError("odd")) == 1
    assert "defect of forge" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["forge", "--debug"])
    with pytest.raises(ValueError, match="odd"):
        _explain(ValueError("odd"))


LEAVING = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from agent_forge.cli.main import _leave
atexit.register(print, "registered")
pool, pooled = ThreadPoolExecutor(1), threading.Event()
pool.submit(lambda: (time.sleep(0.3), print("pooled"), pooled.set()))
threading.Thread(target=lambda: (pooled.wait(), time.sleep(0.3), print("waited for"))).start()
sys.stdout.write("without an end, ")
_leave(7)
"""


def test_what_is_under_way_and_what_is_registered_is_done_before_the_end() -> None:
    """Though the interpreter is not taken apart."""
    ended = subprocess.run(
        [sys.executable, "-c", LEAVING],
        capture_output=True,
        text=True,
        cwd=runs.REPOSITORY,
        check=False,
    )
    assert ended.returncode == 7
    assert ended.stdout == "without an end, pooled\nwaited for\nregistered\n"
    assert not ended.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_resumed(toys: Toys, tmp_path) -> None:
    """Exit code 130 and the command; then the command works."""
    forge_command = [sys.executable, "-c", "from agent_forge.cli.main import main; main()"]
    env = {**os.environ, "FORGE_HOME": str(tmp_path / "home")}
    hold = tmp_path / "hold"  # its first measurement waits for the interrupt
    hold.touch()
    settings = tmp_path / "settings.toml"
    settings.write_text("search_windows = 3\nsearch_questions = 2\n")
    out = ("--output-dir", str(tmp_path / "champion"))
    words = ["evo", *toys.words, "--config", str(settings), "--gens", "0", *out]
    process = subprocess.Popen(
        forge_command + words,
        env={**env, "FORGE_FAILPOINTS": f"hold:{hold}:evaluate-scored"},
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=runs.REPOSITORY,
    )
    home = Home(tmp_path / "home")
    wait_until(lambda: _events(home) >= 3, "the run begins")
    process.send_signal(signal.SIGINT)
    hold.unlink()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    command = next(line for line in err.splitlines() if line.startswith("interrupted"))
    run = command.split()[-1]
    done = subprocess.run(  # the champion goes where it was wanted at the start
        [*forge_command, "evo", "--resume", run],
        env=env,
        capture_output=True,
        text=True,
        cwd=runs.REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "champion" / "model.safetensors").exists()


def _events(home: Home) -> int:
    """Return how many events are in the log; 0 if there is none yet."""
    if not home.database.exists():
        return 0
    with closing(home.open_store()) as store:
        return len(store.read_all())


# ---- settings ------------------------------------------------------------------------------


def test_settings_are_listed_with_defaults_and_words(tmp_path: Path) -> None:
    """All of them; by part of a name; by the source documents' name; no run and no torch needed."""
    every = json.loads(call(tmp_path, "settings", "--json").stdout)
    assert [row["name"] for row in every] == [setting.name for setting in settings()]
    assert {row["name"]: row["strategies"] for row in every}["elite_size"] == [
        "elite-loser",
        "tournament",
    ]
    assert all(row["what"] for row in every)
    drawn = json.loads(call(tmp_path, "settings", "search_", "--json").stdout)
    assert {row["name"]: row["default"] for row in drawn} == {
        "search_sigma": 0.1,
        "search_windows": 48,
        "search_questions": 24,
        "search_problems": 8,
    }
    assert [
        row["name"] for row in json.loads(call(tmp_path, "settings", "dare_threshold", "--json").stdout)
    ] == ["dare_drop"]
    lines = call(tmp_path, "settings", "strategy").stdout.splitlines()
    assert lines[0] == "setting\tstrategies\tdefault\twhat it is"
    assert lines[1].startswith("strategy\t\tauto\tSearch strategy: auto, elite-loser, ")


def test_settings_that_are_none_are_named(tmp_path: Path) -> None:
    """One of the source documents with the reason why it has no effect."""
    assert "setting colour is not known" in fails(tmp_path, 2, "settings", "colour")
    told = fails(tmp_path, 2, "settings", "slerp_t")
    assert told == "setting slerp_t is left out: t is a gene of the recipe and is searched."


def test_options_of_a_merge_of_adapters_are_not_dropped(toys: Toys, tmp_path: Path) -> None:
    for option, value in (("--rank", "2"), ("--sign", "total"), ("--density", "1")):
        words = ("merge", option, value, "config.yml", "out")
        assert f"{option} is an option of --adapters" in fails(tmp_path, 2, *words)
    for option in ("--data", "--base", "--weights", "--parameter"):
        words = ("merge", option, "1", "config.yml", "out")
        assert f"{option} is an option of --method" in fails(tmp_path, 2, *words)
        if option != "--weights":
            told = fails(tmp_path, 2, "merge", "--adapters", "a,b", option, "1", "out")
            assert "with --adapters leave out" in told
    told = fails(tmp_path, 2, "merge", "--adapters", "a,b", "--method", "regmean", "out")
    assert "merges no adapters" in told
    assert "Missing argument 'OUT'" in fails(tmp_path, 2, "merge", "--adapters", "a,b")
    assert "Missing argument 'CONFIG'" in fails(tmp_path, 2, "merge")
    assert "Missing argument 'OUT'" in fails(tmp_path, 2, "merge", "config.yml")
    base = str(toys.base)
    assert "--modules is empty" in fails(tmp_path, 2, "extract", base, base, "o", "--modules", "")


def test_a_merge_needs_no_config(toys: Toys, tmp_path: Path) -> None:
    """The options of a merge are written as a config beside its result, which gives the same again."""
    models, out = list(map(str, toys.sources)), tmp_path / "both"
    words = ["merge", "--method", "regmean++", "--data", str(toys.data), "--parameter", "tokens=300"]
    told = succeeds(tmp_path, *words, "--weights", "1,2,0", *models, str(out), "--json")
    digest = json.loads(told.stdout)["merges"][0]["digest"]
    config = out / "mergekit_config.yml"
    again = call(tmp_path, "merge", str(config), str(tmp_path / "again"), "--json")
    assert json.loads(again.stdout)["merges"][0]["digest"] == digest
    apart = call(tmp_path, "merge", "--method", "ram", "--base", str(toys.base), *models, str(out))
    assert (apart.exit_code, apart.stderr) == (0, ""), apart.output


def test_a_merge_without_a_config_says_what_is_wrong(toys: Toys, tmp_path: Path) -> None:
    """Before any work, and in the words of the command line."""
    models = list(map(str, toys.sources))
    regmean = ("merge", "--method", "regmean")
    told = fails(tmp_path, 2, *regmean, "--data", "a", "--data", "b", *models, "out")
    assert told == "2 --data for 3 models: give one for all models, or one for each, in their order."
    told = fails(tmp_path, 2, *regmean, "--weights", "1,2", *models, "out")
    assert told == "2 --weights for 3 models: give one for each, in their order."
    assert "give KEY=VALUE" in fails(tmp_path, 2, *regmean, "--parameter", "alpha", *models, "out")
    assert "is not YAML" in fails(tmp_path, 2, *regmean, "--parameter", "alpha=[", *models, "out")
    assert "takes 2 or more models" in fails(tmp_path, 2, *regmean, models[0], "out")
    assert "no merge_method 'regnean'" in fails(tmp_path, 2, "merge", "--method", "regnean", "a", "o")
    assert "Missing argument 'OUT'" in fails(tmp_path, 2, *regmean, "out")
    told = fails(tmp_path, 2, "merge", "a.yml", "b", "c")
    assert "say the method" in told
