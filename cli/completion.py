"""`forge completion`: commands and options at the press of a key."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


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
    from cli.main import forge

    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(forge, {}, "forge", "_FORGE_COMPLETE").source())
