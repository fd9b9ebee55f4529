"""`posd relay`: send this lane's feed to head office."""

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from posd.base.text import shown
from posd.cli.app.context import Context
from posd.config import Config, load
from posd.config.schema import SUBJECT_PART


@click.command()
@click.option("--once", is_flag=True, help="Send all waiting changes, and end.")
@click.option("--from", "restart_at", type=click.IntRange(min=1), metavar="SEQ", help="Send again from this change on.")
@click.option("--begin", is_flag=True, help="Send a new database, because the lane's old one is lost.")
@click.pass_obj
def relay(given: Context, once: bool, restart_at: int | None, begin: bool) -> None:
    """Send every outcome of this lane to head office, until SIGTERM or Ctrl-C.

    It reads posd's feed and publishes it to the NATS servers of [relay] in the configuration. Payments do not wait for
    it. The relay can be stopped at any time, because the stream itself records what was sent. A repeated message does
    no harm.

    Logs go to stdout, one JSON line for each event. Exit code 2: the configuration is wrong. 1: an operator has to
    check the lane's subject first. 3, with --once: posd or the servers cannot be reached.
    """
    config = load(Path(given.config_path), check_files=False)  # this user need not read the daemon's files
    _check(config)
    try:
        with _without_rich():
            from posd.relay.relay import run
            from posd.relay.stream import login
    except ModuleNotFoundError as error:
        if error.name != "nats":
            raise
        _unusable("the relay needs the package nats-py: pip install 'posd[relay]'")
    try:
        login(config.relay)
    except (OSError, ValueError) as error:
        _unusable(f"the relay's login files cannot be used: {error}")
    sys.exit(run(config, lane_of(config), once=once, restart_at=restart_at, begin=begin))


_ALLOWED = 'a part of a subject is 1 to 64 of the letters A to Z in both cases, digits, "-" and "_"'


def lane_of(config: Config) -> str:
    """Return the name of this lane at head office."""
    return config.relay.lane or socket.gethostname().split(".")[0]


def _check(config: Config) -> None:
    """Raise UsageError if the configuration lacks a setting of the relay."""
    if not config.relay.servers:
        _unusable('relay.servers is empty: name the NATS servers, like servers = ["tls://nats.example.org:4222"]')
    if not config.merchant.id:
        _unusable(
            "merchant.id is empty: head office distinguishes the lanes of merchants by it. It must be the one in "
            "the events of the terminals: with another one the daemon refuses them"
        )
    if not re.fullmatch(SUBJECT_PART, config.merchant.id):
        _unusable(f"merchant.id {shown(config.merchant.id)} cannot be sent: {_ALLOWED}")
    if not re.fullmatch(SUBJECT_PART, lane_of(config)):
        _unusable(f"the host's name {shown(lane_of(config))} cannot be sent: give relay.lane. {_ALLOWED}")


@contextmanager
def _without_rich() -> Iterator[None]:
    """Hide rich from libraries that would import it, because it takes memory and the relay does not need it."""
    hidden = sys.modules.setdefault("rich", None) is None  # type: ignore[arg-type]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["rich"]


def _unusable(problem: str) -> NoReturn:
    raise click.UsageError(problem)
