"""Entry point of the `posd` command.

The daemon must start quickly and use little memory; the command line parser does neither. So a plain `posd run` is
recognised here. Everything else, including its help and usage errors, goes to `posd.cli.main`.
"""

import os
import sys
from collections.abc import Sequence

from posd.cli.app.context import CONFIG_FILE, CONFIG_VARIABLE


def main() -> None:
    """Run the command of the command line. Does not return."""
    config_path = daemon_config(sys.argv[1:])
    if config_path is not None:
        try:
            from posd.cli.run import run

            run(config_path)
        except KeyboardInterrupt:  # a signal before the orderly stop was installed
            sys.exit(1)
    from posd.cli.app.context import open_streams
    from posd.cli.main import main as command

    open_streams()
    command(prog_name="posd")


def daemon_config(words: Sequence[str]) -> str | None:
    """Return the configuration file of a plain `posd run`; None for other command lines."""
    match list(words):
        case ["run"]:
            return os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE
        case ["--config", path, "run"] if not path.startswith("-"):
            return path
        case _:
            return None
