"""`verify`, `replay`, `diff`, `compare`, `fork`, `archive`, `import`, `db` as a user meets them.

On both databases; the runs are invented (no weights), what needs weights is in ../worker.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent_forge.cli.main import forge
from agent_forge.events import Envelope
from agent_forge.runs.history import audit, repository
from agent_forge.runs.home import Home
from agent_forge.runs.streams import stream
from testing.services.servers import Postgres
from testing.worlds import fake_runs


class Place:
    """A home and its database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.home = Home(folder, url)

    def __call__(self, *words: str, code: int = 0) -> Result:
        env = {"FORGE_HOME": str(self.home.folder), "FORGE_DATABASE_URL": self.home.url}
        result = CliRunner(env=env).invoke(forge, list(words))
        found = getattr(result.exception, "exit_code", result.exit_code)
        assert found == code, f"{result.output}\n{result.exception!r}"
        return result

    def fails(self, code: int, *words: str) -> str:
        """The message of an error."""
        result = self(*words, code=code)
        return f"{result.output}{result.exception}"

    def tamper(self, statement: str) -> None:
        """Change the log behind the guards' back."""
        store = self.home.open_store()
        with store.database.writing() as connection:
            if store.database.engine.dialect.name == "sqlite":
                for name in ("events_no_update", "events_no_delete"):
                    connection.exec_driver_sql(f"DROP TRIGGER {name}")
            else:
                connection.exec_driver_sql("ALTER TABLE events DISABLE TRIGGER USER")
            connection.exec_driver_sql(statement)
        store.close()


def made(folder: Path, kind: str, postgres: Postgres) -> Place:
    """A new place on a database of a kind."""
    folder.mkdir(exist_ok=True)
    return Place(folder, f"sqlite:///{folder}/x.db" if kind == "sqlite" else postgres.new_database())


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, postgres: Postgres, tmp_path: Path) -> Place:
    """A place with the finished run r."""
    place = made(tmp_path / "home", request.param, postgres)
    store = place.home.open_store()
    fake_runs.whole(store, "r")
    store.close()
    return place


def test_an_honest_run_is_verified(place: Place) -> None:
    told = place("verify", "r").stdout
    assert told.splitlines()[-1] == "verified."
    assert re.search(r"events  \d+, head [0-9a-f]{64}", told)
    data = json.loads(place("verify", "r", "--json").stdout)
    assert data["ok"] is True
    assert data["findings"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (
            "UPDATE events SET data = replace(data, '\"seed\":3', '\"seed\":4') WHERE version = 1",
            r"event 1 \(submitted\) of stream evomerge/r was changed",
        ),
        ("UPDATE events SET actor = 'mallory' WHERE version = 12", "event 12"),
        ("DELETE FROM events WHERE version = 20", "event 20 is missing"),
        (
            "UPDATE events SET version = CASE version WHEN 30 THEN 1031 ELSE 1030 END "
            "WHERE version IN (30, 31); "
            "UPDATE events SET version = version - 1000 WHERE version > 1000",
            "events 30 and 31 .*were swapped",
        ),
        ("DELETE FROM events WHERE version > 40", "events 41 to .* gone from the end .*: the run list"),
    ],
    ids=["byte", "actor", "removed", "swapped", "tail"],
)
def test_tampering_is_found_and_named(place: Place, statement: str, why: str) -> None:
    place("runs")
    for part in statement.split(";"):
        place.tamper(part)
    told = place("verify", "r", code=1).stdout
    assert re.search(why, told), told
    assert "NOT verified" in told
    data = json.loads(place("verify", "r", "--json", code=1).stdout)
    assert data["ok"] is False
    assert data["findings"][0]["check"] == "chain"


@pytest.mark.slow
def test_a_change_of_any_column_is_found(place: Place) -> None:
    """In the middle and at the end; `test_flipped_bits.py` does so in the pages of a SQLite file."""
    place("runs")
    store = place.home.open_store()
    rows = store.everything("evomerge/r")
    store.close()
    for row in (rows[len(rows) // 2], rows[-1]):
        for name in Envelope._fields[1:]:  # a position belongs to one database
            number = name in ("version", "schema")
            new = f"{name} + 1000" if number else f"coalesce({name}, '') || 'x'"
            whole = f"nullif(substr({name}, 1, length({name}) - 1), '')"
            old = f"{name} - 1000" if number else whole
            place.tamper(f"UPDATE events SET {name} = {new} WHERE position = {row.position}")
            assert "NOT verified" in place.fails(1, "verify", "r"), name
            place.tamper(f"UPDATE events SET {name} = {old} WHERE position = {row.position}")
    assert "verified." in place("verify", "r").stdout


def test_a_head_noted_elsewhere_anchors_the_end(place: Place) -> None:
    head = json.loads(place("verify", "r", "--json").stdout)["head"]
    assert "verified." in place("verify", "r", "--head", head).stdout
    assert "the head that was given" in place("verify", "r", "--head", "0" * 64, code=1).stdout


def test_a_tail_that_is_gone_is_found_without_a_run_list_on_sqlite(postgres, tmp_path: Path) -> None:
    place = made(tmp_path, "sqlite", postgres)
    store = place.home.open_store()
    fake_runs.whole(store, "r")
    store.close()
    place.tamper("DELETE FROM events WHERE position = (SELECT max(position) FROM events)")
    assert "events are gone from its end" in place("verify", "r", code=1).stdout


def test_replay_shows_the_run_as_it_was(place: Place) -> None:
    early = json.loads(place("replay", "r", "--generation", "0", "--json").stdout)
    assert early["status"] == "running"
    assert early["generation"] == 1
    assert early["champion"]["since"] == 0
    assert [row["slot"] for row in early["population"]] == [0, 1, 2, 3]
    assert early["pending"]
    late = json.loads(place("replay", "r", "--json").stdout)
    assert late["status"] == "completed"
    assert late["pending"] == []
    first = json.loads(place("replay", "r", "--to", "1", "--json").stdout)
    assert first["pending"] == ["start"]
    assert first["population"] == []
    told = place("replay", "r", "--generation", "1").stdout
    assert "generation  2" in told
    assert "diversity" in told
    assert "pending" in told


def test_replay_follows_every_event(place: Place) -> None:
    told = place("replay", "r", "--follow", "--speed", "1000000").stdout.splitlines()
    events = place("events", "r").stdout.splitlines()
    assert [line for line in told if not line.startswith("       ")] == events
    assert sum("best" in line for line in told if line.startswith("       ")) == 3
    part = place("replay", "r", "--follow", "--to", "5").stdout.splitlines()
    assert part == events[:5]


def test_replay_refuses_places_that_are_not_there(place: Place) -> None:
    assert "events 1 to" in place.fails(5, "replay", "r", "--to", "9999")
    assert "generations 0 to 2" in place.fails(5, "replay", "r", "--generation", "3")
    assert "not both" in place.fails(2, "replay", "r", "--to", "1", "--generation", "1")
    assert "--follow" in place.fails(2, "replay", "r", "--speed", "2")
    assert "is not known" in place.fails(5, "replay", "x")


def test_diff_tells_what_a_generation_brought(place: Place) -> None:
    data = json.loads(place("diff", "r@g0", "r@g1", "--json").stdout)
    assert len(data["candidates"]["only_b"]) == 4
    assert data["candidates"]["only_a"] == []
    assert data["settings"] == {}
    assert data["same_lineage"] is False
    assert "4 only in b" in place("diff", "r@g0", "r@g1").stdout
    assert json.loads(place("diff", "r", "r", "--json").stdout)["same_lineage"] is True
    assert "names no place" in place.fails(2, "diff", "r@", "r")


@pytest.mark.slow
def test_fork_records_a_run_that_can_be_compared(place: Place) -> None:
    words = ("fork", "r", "--generation", "2", "--set", "generations=3", "--record-only")
    fork = json.loads(place(*words, "--json").stdout)
    assert fork["changes"] == {"generations": 3}
    store = place.home.open_store()
    fake_runs.finish(store, fork["run"])
    store.close()
    assert "verified." in place("verify", fork["run"]).stdout
    told = place("compare", "r", fork["run"]).stdout
    listed = json.loads(place("runs", "--json").stdout)
    assert [(row["run"], row["parent"]) for row in listed] == [(fork["run"], "r"), ("r", None)]
    name = listed[0]["name"]
    assert f"comparable r and {name}: yes" in told
    assert "generations\t2\t3" in told
    data = json.loads(place("compare", "r", fork["run"], "--json").stdout)
    charts = {panel["title"]: panel["series"] for panel in data["lines"]}
    assert all([line["name"] for line in own] == ["r", fork["run"]] for own in charts.values())
    assert data["judgements"][0]["why_not"] is None
    assert place("events", fork["run"]).stdout.count("forked") == 1


@pytest.mark.parametrize(
    "change", ["mutation_rate=0.3", "search.mutation_rate=0.3", 'search={"mutation_rate": 0.3}']
)
def test_a_fork_changes_a_setting_of_the_search_by_any_of_its_names(place: Place, change: str) -> None:
    """What is recorded is the same, and the audit finds the fork's settings right."""
    words = ("fork", "r", "--generation", "1", "--set", change, "--record-only", "--json")
    fork = json.loads(place(*words).stdout)
    assert fork["changes"] == {"mutation_rate": 0.3}
    store = place.home.open_store()
    state = fake_runs.finish(store, fork["run"])
    rows = list(repository.history(store, fork["run"]))
    store.close()
    assert state.settings(2).search.mutation_rate == 0.3
    assert audit.audit(rows) == []


def test_fork_says_what_is_wrong(place: Place) -> None:
    assert "one of them" in place.fails(2, "fork", "r")
    assert "KEY=VALUE" in place.fails(2, "fork", "r", "--at", "3", "--set", "x")
    assert "colour" in place.fails(2, "fork", "r", "--at", "3", "--set", "colour=red")
    told = place.fails(2, "fork", "r", "--at", "3", "--set", "search.niching=both")
    assert "niching belongs to tournament, not to strategy elite-loser" in told
    assert "in the middle of one append" in place.fails(2, "fork", "r", "--at", str(_inside(place)))


def _inside(place: Place) -> int:
    store = place.home.open_store()
    kinds = [row.type for row in repository.history(store, "r")]
    store.close()
    return kinds.index("diversity_measured") + 1


@pytest.mark.slow
@pytest.mark.parametrize("other", ["sqlite", "postgresql"])
def test_an_archive_verifies_alone_and_replays_on_the_other_database(
    place: Place, postgres: Postgres, tmp_path: Path, other: str
) -> None:
    """A fork's archive holds its past."""
    words = ("fork", "r", "--generation", "1", "--set", "seed=9", "--record-only", "--json")
    fork = json.loads(place(*words).stdout)["run"]
    store = place.home.open_store()
    wanted = fake_runs.finish(store, fork).lineage_digest()
    store.close()
    file = tmp_path / "r.forge"
    place("archive", fork, str(file))
    assert "verified." in place("verify", str(file)).stdout
    there = made(tmp_path / "there", other, postgres)
    assert "events new" in there("import", str(file)).stdout
    assert "was here already" in there("import", str(file)).stdout
    assert "verified." in there("verify", fork).stdout
    replayed = [json.loads(p("replay", fork, "--json").stdout) for p in (place, there)]
    assert replayed[0] == replayed[1]
    store = there.home.open_store()
    assert repository.load(store, fork).lineage_digest() == wanted
    store.close()


@pytest.mark.slow
def test_archive_and_import_say_what_is_wrong(place: Place, postgres, tmp_path: Path) -> None:
    file = tmp_path / "r.forge"
    place("archive", "r", str(file))
    assert "exists already" in place.fails(6, "archive", "r", str(file))
    place("archive", "r", str(file), "--force")
    assert "there is no file" in place.fails(5, "import", str(tmp_path / "nothing"))
    assert "is not known" in place.fails(5, "archive", "x", str(tmp_path / "y"))
    there = made(tmp_path / "there", "sqlite", postgres)
    store = there.home.open_store()
    fake_runs.submit(store, "r", seed=8)
    store.close()
    assert "another history from event 1" in there.fails(6, "import", str(file))
    file.write_bytes(file.read_bytes()[:-200])
    result = there("import", str(file), code=1)
    assert "is refused" in str(result.exception)
    assert "is refused" in str(there("verify", str(file), code=1).exception)


def forked(place: Place) -> str:
    """A finished fork of r."""
    words = ("fork", "r", "--generation", "1", "--record-only", "--json")
    fork = json.loads(place(*words).stdout)["run"]
    store = place.home.open_store()
    fake_runs.finish(store, fork)
    store.close()
    return fork


@pytest.mark.slow
def test_a_fork_whose_past_was_changed_is_found(place: Place) -> None:
    fork = forked(place)
    place.tamper("DELETE FROM events WHERE stream = 'evomerge/r' AND version > 20")
    told = place("verify", fork, code=1).stdout
    assert "the history of r was changed" in told
    assert "NOT verified" in told
    place("db", "rebuild")
    assert fork in place("runs").stdout


def test_an_archive_without_its_past_is_refused(place: Place, postgres, tmp_path: Path) -> None:
    from agent_forge.events import archive

    fork = forked(place)
    store = place.home.open_store()
    streams = {stream("evomerge", fork): store.read(stream("evomerge", fork))}
    store.close()
    file = tmp_path / "half.forge"
    archive.write(file, streams, {}, {"run": fork})
    there = made(tmp_path / "there", "sqlite", postgres)
    assert "was forked from run r" in there.fails(1, "import", str(file))
    assert json.loads(there("runs", "--json").stdout) == []


@pytest.mark.slow
def test_an_import_that_does_not_fit_takes_in_nothing(place: Place, postgres, tmp_path) -> None:
    """The past would fit, the fork itself is another here."""
    fork = forked(place)
    file = tmp_path / "fork.forge"
    place("archive", fork, str(file))
    there = made(tmp_path / "there", "sqlite", postgres)
    store = there.home.open_store()
    fake_runs.submit(store, fork)
    store.close()
    assert "another history" in there.fails(6, "import", str(file))
    assert [r["run"] for r in json.loads(there("runs", "--json").stdout)] == [fork]


def test_a_folder_with_half_a_recipe_is_refused(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "champion"
    folder.mkdir()
    for text in ('{"recipes": {}}', "[]", "{", '{"recipes": 3}'):
        (folder / "evomerge_recipe.json").write_text(text)
        assert "is not a champion's folder" in place.fails(2, "verify", str(folder))


@pytest.mark.slow
def test_db_commands(place: Place) -> None:
    assert "ok" in place("db", "check").stdout
    assert "nothing to do" in place("db", "upgrade").stdout
    assert "made from" in place("db", "rebuild").stdout
    data = json.loads(place("db", "check", "--json").stdout)
    assert data["problems"] == []
    assert "secret" not in data["database"]
    place.tamper("SELECT 1")
    assert "guards" in place("db", "check", code=1).stdout


def test_a_database_of_a_newer_version_is_refused(place: Place) -> None:
    place.tamper("UPDATE alembic_version SET version_num = '9999'")
    assert "newer version" in place.fails(1, "runs")
    assert "newer version" in place.fails(1, "db", "upgrade")


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "nonsense"])
def test_a_url_of_another_database_is_refused(tmp_path: Path, url: str) -> None:
    place = Place(tmp_path, url)
    assert "FORGE_DATABASE_URL is neither" in place.fails(2, "runs")


def test_what_a_newer_version_wrote_is_left_out_and_said(place: Place) -> None:
    """Refused for deciding, skipped for showing."""
    from testing.stores.contract import new

    store = place.home.open_store()
    fake_runs.submit(store, "young")
    fake_runs.finish(store, "young", lambda state: state.generation == 1)
    store.append(stream("evomerge", "young"), None, [new("young/quantised")])
    store.close()
    for words in (("show", "young"), ("replay", "young"), ("lineage", "young"), ("diff", "young", "r")):
        result = place(*words)
        assert "counted@1) are of a newer version" in result.stderr, words
    assert "counted" in place("events", "young").stdout
    assert "unchecked: events: event counted@1 is not known" in place("verify", "young", code=3).stdout
    count = len(place("events", "young").stdout.splitlines())
    assert "newer version" in place.fails(1, "fork", "young", "--at", str(count))


INSERT = (
    "INSERT INTO events (stream, version, event_id, type, schema, data, key, actor, recorded_at, "
    "code_version, prev_hash, hash) SELECT stream, {version}, 'x', type, schema, {data}, 'x', actor, "
    "recorded_at, code_version, prev_hash, hash FROM events WHERE stream = 'evomerge/r' AND "
    "type = 'champion_changed' LIMIT 1"
)


@pytest.mark.slow
def test_a_row_before_the_first_is_found_and_shown_nowhere(place: Place) -> None:
    """A forged score of version 0 was verified, and `forge runs` showed it."""
    before = place("runs", "--json").stdout
    place.tamper(INSERT.format(version=0, data="replace(data, '\"score\":', '\"score\":9')"))
    assert "has an event 0" in place("verify", "r", code=1).stdout
    assert place("runs", "--json").stdout == before
    place("db", "rebuild")
    assert place("runs", "--json").stdout == before


COLUMNS = ["stream", "event_id", "type", "data", "key", "actor", "recorded_at", "hash", "version"]


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS[1:])
@pytest.mark.parametrize("value", ["x'00ff'", "CAST(x'7b80ff' AS TEXT)"], ids=["blob", "no UTF-8"])
def test_a_column_that_holds_no_text_is_a_finding(
    postgres, tmp_path: Path, column: str, value: str
) -> None:
    """SQLite stores anything anywhere: it was a traceback, or a log that is not available."""
    place = made(tmp_path, "sqlite", postgres)
    store = place.home.open_store()
    fake_runs.whole(store, "r")
    store.close()
    place.tamper(f"UPDATE events SET {column} = {value} WHERE version = 12")
    told = place("verify", "r", code=1).stdout
    assert "NOT verified" in told
    assert "was changed" in told
    for words in (("verify", "--all"), ("verify", "--all", "--json"), ("verify", "r", "--json")):
        place(*words, code=1)


@pytest.mark.slow
def test_streams_of_users_limits_and_models_are_verified(place: Place) -> None:
    """An admin who was made by a row of the database was found by nothing."""
    place("users", "add", "ada", "--role", "admin")
    place("limits", "ada", "--weight", "2")
    for name in ("users", "queue"):
        assert "verified." in place("verify", name).stdout
    told = place("verify", "--all").stdout
    assert re.search(r"ok +users +\d events", told), told
    assert re.search(r"ok +evomerge/r +\d+ events", told)
    place.tamper("UPDATE events SET data = replace(data, 'ada', 'bob') WHERE stream = 'users'")
    assert "event 1 (user_added) of stream users was changed" in place("verify", "users", code=1).stdout
    told = place("verify", "--all", code=1).stdout
    assert re.search(r"WRONG +users", told)
    assert re.search(r"ok +queue", told)
    data = json.loads(place("verify", "--all", "--json", code=1).stdout)
    assert data["ok"] is False
    assert {one["run"]: bool(one["findings"]) for one in data["streams"]} == {
        "r": False,
        "checks/r": False,  # what the first `--all` has found
        "users": True,
        "queue": False,
    }


def test_a_stream_that_cannot_be_verified_hides_no_other(place: Place) -> None:
    """One inserted row ended `--all` with an error: no stream was reported."""
    row = INSERT.format(version=0, data="data").replace("SELECT stream", "SELECT '{}'")
    place.tamper(row.format("evomerge/zzz"))
    other = row.format("evomerge/").replace("'x'", "'y'")  # the beginning of the name of run r
    place.tamper(other)
    told = place("verify", "--all", code=1).stdout
    assert re.search(r"WRONG +evomerge/zzz", told), told
    assert re.search(r"WRONG +evomerge/ ", told), told
    assert re.search(r"ok +evomerge/r +\d+ events", told), told
    data = json.loads(place("verify", "--all", "--json", code=1).stdout)
    assert [one["run"] for one in data["streams"]].count("r") == 1


def test_verify_takes_one_thing_or_all(place: Place) -> None:
    assert "--all" in place.fails(2, "verify")
    assert "--all" in place.fails(2, "verify", "r", "--all")
    assert "leave out --all" in place.fails(2, "verify", "--all", "--rebuild", "all")
    assert "is for a run" in place.fails(2, "verify", "users", "--head", "0" * 64)


@pytest.mark.slow
def test_an_event_that_no_table_can_take_does_not_stop_the_list(place: Place) -> None:
    """A number beyond 64 bits, or a zero byte on PostgreSQL, broke every list for good."""
    store = place.home.open_store()
    for run in ("s", "t"):
        fake_runs.submit(store, run)
    store.close()
    place.tamper(
        'UPDATE events SET data = replace(data, \'"owner":"ada"\', \'"owner":"a\\u0000a"\') '
        "WHERE stream = 'evomerge/s'"
    )
    huge = INSERT.format(
        version="(SELECT 1 + max(version) FROM events WHERE stream = 'evomerge/r')",
        data="replace(data, '\"generation\":0', '\"generation\":1' || replace('x', 'x', '{}'))",
    )
    place.tamper(huge.format("0" * 30))
    told = place("runs").stdout
    assert re.search(r"\br\b.*completed", told), told
    assert re.search(r"\bt\b.*submitted", told), told
    for command in (["db", "rebuild"], ["queue"], ["models", "list"]):
        place(*command)
    problems = place("db", "check", code=1).stdout
    assert "the tables runs are made without event evomerge/r 64 (champion_changed)" in problems
    kind = place.home.url or ""
    assert ("without event evomerge/s 1 (submitted)" in problems) == kind.startswith("postgres")
