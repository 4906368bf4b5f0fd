"""`forge pipeline report`: a pipeline's report for people, at any time."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import emit, json_option, say


@click.command("report")
@click.argument("run")
@click.option("--out", type=click.Path(), help="A folder for report.md and report.html.")
@json_option
def report_command(run: str, out: str | None, as_json: bool) -> None:
    """Print a pipeline's report as Markdown, a section a phase, or write it as Markdown and HTML.

    Of a pipeline that is under way or has failed it says what is known so far. It is in the folder of
    --output-dir, too.

    \b
    Example:
      forge pipeline report 20261121-3fa9c1 --out report
    """
    from contextlib import closing

    from pipeline import folder
    from pipeline.events import PipelineState
    from runs.home import Home
    from runs.lists.finding import load_of

    home = Home.default()
    with closing(home.open_store()) as store:
        name = load_of(PipelineState, store, run).run
    files = folder.documents(home, name)
    if out is None:
        text = files[folder.MARKDOWN].decode()
        emit({"run": name, "report": text}) if as_json else say(text.rstrip())
        return
    folder.put(Path(out), files)
    emit({"run": name, "folder": out}) if as_json else say(
        f"report    {out}/{folder.MARKDOWN}, .html"
    )
