"""`posd run`: the daemon."""

import sys
import traceback
from pathlib import Path

import click

from posd.cli.exit_codes import ExitCode


@click.command()
@click.pass_obj
def run(config_path: str) -> None:
    """Run the daemon in the foreground, until SIGTERM or Ctrl-C.

    Logs go to stdout, one JSON line a fact. Exit code 2: the configuration or the certificate is wrong;
    1: something else is in the way, such as another daemon or a port in use.
    """
    # structlog and the HTTP client import rich where they find it: megabytes that a daemon has no use for.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]

    from posd.config import ConfigError, load

    try:
        config = load(Path(config_path))
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"posd: {problem}", err=True)
        sys.exit(ExitCode.USAGE)

    try:
        from posd.daemon import run as run_daemon

        code = run_daemon(config)
    except Exception:  # noqa: BLE001 - the daemon's stderr is a log, where a crash belongs in full
        traceback.print_exc()
        code = ExitCode.NOT_DONE
    sys.exit(code)
