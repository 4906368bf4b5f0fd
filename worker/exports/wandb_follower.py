"""The process that sends a run to W&B while another process carries out the run.

Its command is `python -m worker.exports.wandb_follower RUN`.

The process follows the log until the run has ended or its parent is gone. The parent kills it if it
takes too long. Its errors do not affect the run.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

from agent_forge.runs.errors import ConfigError, ConflictError, ForgeError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.worker.exports.wandb import WandbTarget, client, sync

#: Seconds that the end of a run waits for W&B, at most.
PATIENCE = 30.0


def wanted(flag: bool, warn: Callable[[str], None]) -> bool:
    """Return True if W&B should follow runs, because of the flag or of FORGE_WANDB.

    If W&B is not installed, the flag raises UnavailableError before anything begins. The variable,
    which is set for every run, only leads to a warning. Raises ConfigError if FORGE_WANDB is neither 0
    nor 1.
    """
    setting = os.environ.get("FORGE_WANDB", "")
    if setting not in ("", "0", "1"):
        raise ConfigError(
            f"FORGE_WANDB is {setting!r}: give 1 or 0. WANDB_MODE says online or offline."
        )
    if not flag and setting != "1":
        return False
    try:
        client()
    except UnavailableError as error:
        if flag:
            raise
        warn(str(error))
        return False
    return True


@contextlib.contextmanager
def beside(
    home: Home, run: str, warn: Callable[[str], None], patience: float | None = None
) -> Iterator[None]:
    """Wrap a block: another process follows the run meanwhile; its errors become warnings."""
    with tempfile.TemporaryFile() as output:
        try:
            process = _start(home, run, output)
        except OSError as error:
            warn(f"W&B does not follow run {run}: {error.strerror}.{_later(run)}")
            process = None
        try:
            yield
        finally:
            if process is not None:
                why = _end(process, run, PATIENCE if patience is None else patience, output)
                if why:
                    warn(why)


def _later(run: str) -> str:
    return f" `forge wandb sync {run}` sends it later."


def _start(home: Home, run: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Return a new process that follows the run; it stops at the end of its standard input."""
    env = {**os.environ, "FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": home.url or ""}
    return subprocess.Popen(
        [sys.executable, "-m", "agent_forge.worker.exports.wandb_follower", run],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=output,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes], run: str, patience: float, output: IO[bytes]) -> str:
    """Stop the process; return a warning, or "" if everything was sent.

    It is killed after `patience` seconds.
    """
    assert process.stdin
    process.stdin.close()
    try:
        code = process.wait(patience)
    except subprocess.TimeoutExpired:
        return f"W&B did not take all of run {run} within {patience:g} seconds.{_later(run)}"
    finally:
        if process.poll() is None:  # too slow, or the user pressed Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if not code:
        return ""
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
    is_expected = code in (ConfigError.exit_code, UnavailableError.exit_code, ConflictError.exit_code)
    return lines[-1] if is_expected else f"W&B was not sent run {run}: {lines[-1]}.{_later(run)}"


def _parent_says_stop(seconds: float) -> bool:
    """Wait `seconds`; return True at once if the parent closes our standard input or dies."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def main() -> None:
    """Follow the run that the command line names; `beside` starts this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for the parent
    home = Home.default()
    try:
        sync(home, sys.argv[1], WandbTarget.of(home), follow=True, wait=_parent_says_stop)
    except ForgeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
