"""`forge`: the group of commands, each imported when it is called; and `forge completion`."""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import os
import select
import sys
import threading

import click
from click.shell_completion import get_completion_class

from agent_forge.cli.options import SuggestingGroup
from agent_forge.runs.system.process_limits import sleep_by_default

#: Command → (module, one line of help). The line stands here so that `--help` imports nothing.
COMMANDS = {
    "evo": ("agent_forge.cli.evomerge.evo", "Evolve merges of models; start a run or resume one."),
    "init": ("agent_forge.cli.evomerge.init", "Write a config file to start from."),
    "start": ("agent_forge.cli.runs.start", "Start or submit a run of any kind, from a config file."),
    "submit": ("agent_forge.cli.evomerge.evo", "Submit a run to the queue; a worker carries it out."),
    "up": (
        "agent_forge.cli.operations.up",
        "Start Redis, a worker and perhaps PostgreSQL on this machine.",
    ),
    "worker": (
        "agent_forge.cli.operations.worker",
        "Work on the queue's runs, on this machine's devices.",
    ),
    "workers": ("agent_forge.cli.operations.launch", "List devices, or launch workers elsewhere."),
    "limits": ("agent_forge.cli.operations.worker", "Show or change how users share the workers."),
    "queue": ("agent_forge.cli.runs.inspect", "List the runs that wait or are under way."),
    "watch": ("agent_forge.cli.runs.progress", "Follow a run that another process carries."),
    "pause": ("agent_forge.cli.runs.control", "Pause a run; tasks under way are finished."),
    "resume": ("agent_forge.cli.runs.control", "Resume a paused run."),
    "cancel": ("agent_forge.cli.runs.control", "Cancel a run for good."),
    "retry": ("agent_forge.cli.runs.control", "Retry a run: forget its failed attempts."),
    "priority": ("agent_forge.cli.runs.control", "Change a run's priority."),
    "rename": ("agent_forge.cli.runs.control", "Call a run by another name."),
    "note": ("agent_forge.cli.runs.control", "Write a note on a run."),
    "tag": ("agent_forge.cli.runs.control", "Give a run tags, or take them away."),
    "runs": ("agent_forge.cli.runs.inspect", "List the runs."),
    "show": ("agent_forge.cli.runs.inspect", "Show a run: how far it is, and its result."),
    "events": ("agent_forge.cli.runs.inspect", "Print the events of a run."),
    "lineage": ("agent_forge.cli.runs.inspect", "Show what a model was made from, across runs."),
    "replay": ("agent_forge.cli.runs.compare", "Show a run as it was at any event or generation."),
    "diff": ("agent_forge.cli.runs.compare", "Show the differences between two places in runs."),
    "compare": ("agent_forge.cli.runs.compare", "Compare two runs side by side."),
    "verify": (
        "agent_forge.cli.verify",
        "Check a run, an archive or a champion's folder; rebuild its weights.",
    ),
    "fork": ("agent_forge.cli.runs.fork", "Branch a run at any event or generation."),
    "archive": ("agent_forge.cli.runs.fork", "Write a run's whole history to one file."),
    "import": ("agent_forge.cli.runs.fork", "Import a run from an archive."),
    "artifacts": (
        "agent_forge.cli.operations.artifacts",
        "List or re-encrypt the store that machines share.",
    ),
    "db": ("agent_forge.cli.operations.db", "Upgrade, check or rebuild the database's tables."),
    "export": (
        "agent_forge.cli.runs.export",
        "Write a run's champion as a Hugging Face folder, with a report.",
    ),
    "decompress": (
        "agent_forge.cli.runs.export",
        "Write the model in a file of coded weights as a folder.",
    ),
    "wandb": ("agent_forge.cli.operations.wandb", "Send runs to Weights & Biases."),
    "merge": ("agent_forge.cli.evomerge.merge", "Merge models as a mergekit config says, out of core."),
    "extract": (
        "agent_forge.cli.runs.export",
        "Write a fine-tuned model as a LoRA adapter of its base.",
    ),
    "recipe": (
        "agent_forge.cli.evomerge.items",
        "Print how a candidate is made, as a config for `forge merge`.",
    ),
    "score": ("agent_forge.cli.evomerge.score", "Measure models as runs do, without a run."),
    "data": ("agent_forge.cli.data", "Show what a model reads of your data."),
    "chat": ("agent_forge.cli.chat", "Talk with a model: what a run has made, or any other."),
    "items": ("agent_forge.cli.evomerge.items", "Show where a candidate wins and loses, item by item."),
    "check": (
        "agent_forge.cli.evomerge.evo",
        "Check config, models and data in seconds; start nothing.",
    ),
    "kinds": ("agent_forge.cli.runs.start", "List the kinds of run."),
    "settings": ("agent_forge.cli.runs.start", "List the settings of a run, with their defaults."),
    "layers": ("agent_forge.cli.evomerge.items", "Show each source's share of a candidate's layers."),
    "mergeability": (
        "agent_forge.cli.evomerge.mergeability",
        "Tell before a search if a merge can beat its sources.",
    ),
    "models": ("agent_forge.cli.models", "List, show, register and remove models."),
    "serve": ("agent_forge.cli.operations.serve", "Serve the dashboard and the API."),
    "mcp": ("agent_forge.cli.operations.serve", "Serve MCP clients: editors and chat programs."),
    "users": ("agent_forge.cli.operations.users", "List and change who may use the API; make tokens."),
    "pipeline": ("agent_forge.cli.pipeline", "Run phases in a row, with gates between them."),
    "override": (
        "agent_forge.cli.runs.control",
        "Let a pipeline go on behind a gate that has stopped it.",
    ),
    "bake": ("agent_forge.cli.runs.start", "Bake a prompt into a model's weights."),
    "bitnet": ("agent_forge.cli.runs.start", "Train a model to have ternary weights."),
    "compress": ("agent_forge.cli.runs.start", "Encode a model in few bytes, at a measured rate."),
    "cognate": ("agent_forge.cli.runs.start", "Train a small base and three specialists here."),
    "quietstar": ("agent_forge.cli.runs.start", "Train a model to think before each token."),
    "curriculum": (
        "agent_forge.cli.runs.start",
        "Train a model on tasks at the edge of what it can do.",
    ),
    "student": ("agent_forge.cli.runs.start", "Train a smaller model to predict as a given one does."),
    "tune": ("agent_forge.cli.runs.start", "Tune a model on conversations."),
    "baking": ("agent_forge.cli.runs.start", "Bake the use of tools, and personas, into a model."),
    "experts": ("agent_forge.cli.runs.start", "Train experts for domains, and search their mixtures."),
    "measure": ("agent_forge.cli.runs.start", "Measure a model beside others on the same documents."),
    "doctor": ("agent_forge.cli.operations.doctor", "Check this machine."),
    "completion": (
        "agent_forge.cli.main",
        "Print what a shell needs to complete commands and options.",
    ),
}

#: The sections of `forge --help`: every command stands in one of them.
SECTIONS = {
    "Runs": (
        "init",
        "start",
        "pipeline",
        "check",
        "kinds",
        "settings",
        "watch",
        "pause",
        "resume",
        "cancel",
        "retry",
        "override",
        "priority",
        "rename",
        "note",
        "tag",
    ),
    "Queue": ("up", "worker", "workers", "submit", "queue", "limits"),
    "Inspecting": ("runs", "show", "events", "lineage", "items", "layers", "replay", "diff", "compare"),
    "History": ("verify", "fork", "archive", "import"),
    "Phases": (
        "cognate",
        "evo",
        "quietstar",
        "bitnet",
        "curriculum",
        "bake",
        "baking",
        "experts",
        "compress",
        "student",
        "tune",
        "measure",
    ),
    "Models and merging": (
        "models",
        "chat",
        "data",
        "mergeability",
        "merge",
        "extract",
        "recipe",
        "score",
        "export",
        "decompress",
    ),
    "Server and users": ("serve", "mcp", "users"),
    "Storage": ("db", "artifacts"),
    "Environment": ("doctor", "completion", "wandb"),
}


#: Exit code if the reader of our output has gone (`forge events RUN | head`), as after SIGPIPE.
READER_GONE = 141


class _ReaderGoneError(Exception):
    """The reader of the command's output has closed the pipe; the command ends silently.

    SIGPIPE stays ignored, as Python has it: it would also end a process that writes to a child or
    a connection which has just gone.
    """


class Lazy(SuggestingGroup):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, section by section."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command after importing its module; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        if command := getattr(module, f"{cmd_name}_command", None):
            return command
        return module.command_of(cmd_name, COMMANDS[cmd_name][1])

    def invoke(self, ctx: click.Context) -> object:
        """Return the command's result; raise _ReaderGoneError if it failed as the reader has gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if _reader_gone():
                raise _ReaderGoneError from error
            raise ConnectionError(f"the other side has closed a connection: {error}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their help lines by section, without importing them."""
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names], col_max=12)


class _Plain(logging.Formatter):
    """A formatter of messages for a terminal: control characters are escaped, also in foreign names."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text with control characters escaped, line by line."""
        from agent_forge.runs.system.plain_text import visible

        return "\n".join(map(visible, super().format(record).split("\n")))


def _version(ctx: click.Context, _option: click.Parameter, requested: bool) -> None:
    """Print the version and end the program, if the option was given."""
    if not requested:
        return
    from agent_forge.runs.system import build

    click.echo(f"forge, version {build.sentence()}")
    ctx.exit()


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version and its commit, and exit.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks and debug logs.")
@click.pass_context
def forge(ctx: click.Context, debug: bool) -> None:
    """Make small language models better, and know by how much: train a base and specialists, evolve
    their merge, teach it thoughts, ternary weights, tasks, prompts, tools and experts, and compress it.

    The eight phases are runs of a kind each; `forge pipeline` chains them, with gates between. Every
    step is an event of a log: every run can be resumed, forked and checked.

    \b
    Example:
      forge cognate --out models
      forge evo --base-models models/code,models/math,models/data \\
                --base-model models/base --data models/items --gens 8
      forge pipeline run examples/speedrun.toml --output-dir speedrun
    """
    ctx.obj = {"debug": debug}
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])
    for noisy in ("matplotlib", "urllib3", "filelock", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # a lost server is said by our own error
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)


def main() -> None:
    """Run `forge`, print errors as messages, and end the process by `os._exit` (codes: SPEC §9)."""
    _leave(_run())


def _leave(code: int) -> None:
    """End the program without taking the interpreter apart, which with torch in it takes 0.7 s."""
    wait_for_threads = getattr(threading, "_shutdown", None)
    run_what_is_registered = getattr(atexit, "_run_exitfuncs", None)
    if wait_for_threads is not None and run_what_is_registered is not None:
        wait_for_threads()
        run_what_is_registered()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except BrokenPipeError:
            os._exit(READER_GONE)
        except (OSError, ValueError, AttributeError):  # said as always, by the interpreter
            sys.exit(code)
        os._exit(code)
    sys.exit(code)


def _reader_gone() -> bool:
    """Return True if standard output or standard error is a pipe without a reader."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        poll.register(sys.stderr.fileno(), 0)
        return any(what & select.POLLERR for _, what in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def _run() -> int:
    """Run the command; return its exit code, also after an error."""
    sleep_by_default()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # Collecting garbage among freshly imported modules takes a tenth of the start-up.
    gc.set_threshold(50_000, 20, 20)
    try:
        code = forge(standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except _ReaderGoneError:
        return READER_GONE
    except Exception as error:
        return _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> int:
    """Print an error; return its exit code, 1 for an unexpected one. With --debug, raise it instead."""
    if "--debug" in sys.argv:
        raise error
    from agent_forge.cli.options import say

    code: int | None = getattr(error, "exit_code", None)
    if code is None:
        say(
            f"error: {type(error).__name__}: {error}\nThis is a defect of forge. Run again with "
            "`forge --debug …` and report the traceback; the log is intact.",
            err=True,
        )
        return 1
    say(f"error: {error}", err=True)
    return int(code)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print what a shell needs to complete commands and options. Put it where the shell reads it.

    \b
    Example:
      forge completion bash >> ~/.bashrc
      forge completion zsh >> ~/.zshrc
      forge completion fish > ~/.config/fish/completions/forge.fish
    """
    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(forge, {}, "forge", "_FORGE_COMPLETE").source())
