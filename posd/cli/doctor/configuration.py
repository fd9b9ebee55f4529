"""The configuration file: everything that is wrong with it, and with the files that it names."""

import errno
import os
import stat

from posd.cli.doctor.context import AS_ROOT, Findings, Shop, failure, me, ok, warning
from posd.config import examine


def check(shop: Shop) -> Findings:
    """Tell each problem, or that there is none."""
    known = set(shop.problems)
    in_files = [problem for problem in examine(shop.config_file)[1] if problem not in known]
    # What this user may not read the daemon may well be able to: that says nothing about the set-up.
    closed = [problem for problem in in_files if os.strerror(errno.EACCES) in problem.reason and os.geteuid() != 0]
    for problem in (*shop.problems, *in_files):
        subject = problem.key or problem.file
        if problem in closed:
            yield warning(subject, f"not looked at: {me()} may not read the file that it names", AS_ROOT)
        else:
            yield failure(subject, problem.reason, problem.cure)
    if not shop.problems and len(closed) == len(in_files):
        yield ok(str(shop.config_file), "every key is known and every value can be used")
    if shop.config is not None:
        yield from _permissions(shop)
        if not shop.settings.terminals and not shop.problems:
            yield warning(
                "terminals",
                "the configuration names no terminal: every payment is refused",
                'add a section [[terminals]] with serial = "…" for each terminal, then restart posd',
            )


def _permissions(shop: Shop) -> Findings:
    file = shop.config_file
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & stat.S_IWOTH:
        yield failure(
            str(file),
            "everybody on this machine may change the configuration, and so decide which terminals are believed",
            f"chmod o-w {file}",
        )
    secret = any(
        header.value is not None
        for headers in (*shop.settings.profile_headers.values(), *(one.headers for one in shop.settings.terminals))
        for header in headers.values()
    )
    if secret and mode & stat.S_IROTH:
        yield warning(
            str(file),
            "it has values of headers in it, which may be keys, and everybody on this machine may read them",
            "put the values into files of their own (headers = {NAME = {file = …}}), or close the configuration to "
            f"others: chmod o-r {file}",
        )
