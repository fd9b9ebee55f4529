"""Entry point of the `posd` command.

The daemon must start fast and use little memory, and the command line parser is slow and large. So a plain `posd run`
is recognised here, without the parser. Everything else, including help and usage errors, goes to `posd.cli.main`.
"""

import os
import sys
from collections.abc import Sequence

from posd.cli.app.context import CONFIG_FILE, CONFIG_VARIABLE


def main() -> None:
    """Run the command of the command line, and exit."""
    config_path = daemon_config(sys.argv[1:])
    if config_path is not None:
        try:
            from posd.cli.run import run

            run(config_path)
        except KeyboardInterrupt:  # Ctrl-C before the daemon handles signals
            sys.exit(1)
    from posd.cli.app.context import open_streams
    from posd.cli.main import main as command

    open_streams()
    command(prog_name="posd")


def daemon_config(words: Sequence[str]) -> str | None:
    """Return the configuration file of a plain `posd run`, or None for any other command line."""
    match list(words):
        case ["run"]:
            return os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE
        case ["--config", path, "run"] if not path.startswith("-"):
            return path
        case _:
            return None
