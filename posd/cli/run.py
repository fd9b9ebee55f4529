"""Start of the daemon by `posd run`.

This module does not import the command line parser, which would stay in memory.
"""

import gc
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from posd.cli.app.context import ExitCode

#: Modules that libraries would import, although the daemon does not need them: structlog imports rich (megabytes), and
#: `shutil` imports modules for compression.
UNUSED = ("rich", "bz2", "lzma")


def run(config_path: str) -> NoReturn:
    """Run the daemon until a signal stops it. Exit with its exit code."""
    for name in UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    # The objects of the start live as long as the daemon, so garbage collection during the start only takes time. The
    # daemon enables it when it is ready.
    gc.disable()

    from posd.config import Config, ConfigError, ConfigProblem, load

    refused: tuple[ConfigProblem, ...] = ()
    try:
        config: Config | None = load(Path(config_path))
    except ConfigError as error:
        from posd.daemon.reload import recall_copy

        refused, config = error.problems, recall_copy(Path(config_path))
    if config is None:
        from posd.base.text import Language, shown
        from posd.logs.output import PREFIXES, to_journal

        level = PREFIXES["error"].decode() if to_journal(sys.stderr) else ""
        if sys.stderr is not None and sys.stderr.isatty():  # elsewhere the faults are in English, as the log is
            from posd.cli.app.lazy import speaks_spanish
            from posd.cli.explain.catalogue import translated, use

            use(Language.ES if speaks_spanish() else Language.EN)
            refused = tuple(map(translated, refused))
        for problem in refused:
            print(f"{level}posd: {shown(str(problem))}", file=sys.stderr)  # noqa: T201 - output of a command
        from posd.daemon.systemd import notify

        more = len(refused) - 1
        notify(STATUS=f"cannot start: {refused[0]}" + (f" (and {more} more: posd config check)" if more else ""))
        sys.exit(ExitCode.USAGE)

    try:
        from posd.daemon.main import run as run_daemon

        code = run_daemon(config, refused)
    except Exception:  # noqa: BLE001 - the daemon logs its own errors, but not a failed import
        traceback.print_exc()
        code = ExitCode.NOT_DONE
    if code and sys.stderr is not None and sys.stderr.isatty():
        print("> posd doctor", file=sys.stderr)  # noqa: T201 - the log says why in English; doctor in the language
    sys.exit(code)
