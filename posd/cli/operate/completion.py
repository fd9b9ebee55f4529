"""`posd completion`: what makes a shell complete the commands of posd."""

import click

from posd.cli.app.completion_words import SHELLS


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options and ids.

    SHELL is bash, zsh or fish. Ids of payments and print jobs, serials and attention codes are asked from the daemon;
    where it does not answer at once, nothing is offered. A package of posd has put the scripts in place already.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no {shell}")
    made = kind(ctx.find_root().command, {}, "posd", "_POSD_COMPLETE")
    # Not the class's own: that one of bash runs bash, to complain of its age.
    click.echo(ShellComplete.source(made))
