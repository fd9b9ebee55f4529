"""Where the `posd` command begins.

The daemon must start quickly and small, and what reads command lines is neither. So a plain `posd run` is recognised
here, and everything else, the help and mistakes of `posd run` among it, is left to `posd.cli.main`.
"""

import os
import sys
from collections.abc import Sequence

from posd.cli.app.context import CONFIG_FILE, CONFIG_VARIABLE


def main() -> None:
    """Run the command that the command line names; this does not return."""
    config_path = daemon_config(sys.argv[1:])
    if config_path is not None:
        try:
            from posd.cli.run import run

            run(config_path)
        except KeyboardInterrupt:  # before there was anything that could stop in order
            sys.exit(1)
    from posd.cli.app.context import open_streams
    from posd.cli.main import main as command

    open_streams()
    command(prog_name="posd")


def daemon_config(words: Sequence[str]) -> str | None:
    """Return which configuration file `posd run` is to use, None if the words are not plainly that."""
    match list(words):
        case ["run"]:
            return os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE
        case ["--config", path, "run"] if not path.startswith("-"):
            return path
        case _:
            return None
