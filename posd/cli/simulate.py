"""`posd simulate`: a simulated terminal, alone."""

import asyncio
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from posd import tls
from posd.cli.exit_codes import ExitCode
from posd.cli.parameters import amount
from posd.simulator import Entry, Settings, SettingsError, Simulator
from posd.simulator.print_scenarios import CHOICE, DEFAULT_PRINT_SCENARIO, PRINT_SCENARIOS
from posd.simulator.scenarios import DEFAULT_SCENARIO, SCENARIOS

#: Ports of the terminal profile's default base URLs.
HTTPS_PORT = 6869
HTTP_PORT = 6868
#: Lines that wait for a reader of stdout who is slow or gone; further ones are dropped, the ledger file has them all.
MAX_WAITING_LINES = 10_000
#: Seconds that the last lines have to be written at the end.
LAST_LINES_SECONDS = 0.3

#: Lines of a print that are shown on the screen; `GET /simulator/prints` has them all.
MAX_PAPER_LINES = 60
#: Stands before each of them.
PAPER_MARGIN = " " * 24 + "| "

_FILE = click.Path(dir_okay=False, path_type=Path)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


@click.command()
@click.option("--serial", default="SN-0001", show_default=True, help="Serial number.")
@click.option("--brand", default="Simulated", show_default=True)
@click.option("--model", default="SIM-1", show_default=True)
@click.option("--merchant-id", default="MERCHANT-0001", show_default=True, help="merchant_id of the events.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"Address to listen on; port 0 takes a free one. [default: 0.0.0.0:{HTTPS_PORT}, with --http {HTTP_PORT}]",
)
@click.option("--http", is_flag=True, help="Plain HTTP instead of HTTPS.")
@click.option("--cert", type=_FILE, help="PEM certificate; without it one is made in the state directory.")
@click.option("--key", type=_FILE, help="PEM private key of --cert.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keeps the certificate, the queue of undelivered events, the record of finals and the print jobs. "
    "[default: a temporary directory]",
)
@click.option("--trust", type=_FILE, metavar="PEM", help="CA of the webhook receivers. [default: the system's]")
@click.option(
    "--scenario",
    type=click.Choice(list(SCENARIOS)),
    default=DEFAULT_SCENARIO,
    show_default=True,
    help='What happens to a payment whose metadata has no {"scenario": NAME}.',
)
@click.option(
    "--print-scenario",
    type=click.Choice(list(PRINT_SCENARIOS)),
    default=DEFAULT_PRINT_SCENARIO,
    show_default=True,
    help=f"What happens to a print job whose reference is not {CHOICE}NAME.",
)
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    help="How much faster than people: divides human delays, the printer's, the waiting limit and the delivery's "
    "backoff and window.",
)
@click.option("--seed", type=int, help="Makes payments reproducible, given the same ids.")
@click.option(
    "--wait-seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="How long wait-for-abort waits until it rejects, before --speed; 0: for ever.",
)
@click.option(
    "--delivery-timeout",
    type=float,
    default=10.0,
    show_default=True,
    help="Seconds that a receiver of events has to answer; not scaled by --speed.",
)
@click.option(
    "--tip",
    type=amount,
    metavar="AMOUNT",
    help="The cardholder adds this tip on the terminal, to each charge, pre-auth, re-auth and capture.",
)
@click.option("--unruly", is_flag=True, help="Deliver events out of order and more than once, as a bad network does.")
@click.option("--no-mdns", is_flag=True, help="Do not announce over mDNS.")
@click.option(
    "--mdns-interface", multiple=True, metavar="ADDR", help="Address of an interface to announce on; repeatable."
)
@click.option("--ledger", type=_FILE, metavar="FILE", help="Append what really happens, as JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, as when stdout is no terminal.")
def simulate(
    *,
    listen: str | None,
    http: bool,
    cert: Path | None,
    key: Path | None,
    state: Path | None,
    as_json: bool,
    no_mdns: bool,
    mdns_interface: tuple[str, ...],
    ledger: Path | None,
    **common: Any,
) -> None:
    """Run a simulated card terminal that speaks the real wire.

    It runs charge, pre-auth, re-auth, capture, post-tip and void, answers abort and search, on the local-network paths
    and on the cloud's with its serial; it announces itself over mDNS and delivers its events with the terminal's own
    retry policy. A reference that is unknown, replaced, used up or of the wrong kind is refused with 422. Beside the
    payments it prints, one job after the other; it shows what comes out on paper and tells the end of each job once.
    Ctrl-C ends it. Killed and started again with the same --state, it has forgotten the payment in progress, delivers
    what is still queued, prints what was not printed, knows every reference, and a search finds every payment that
    ended.
    """
    if http and (cert or key):
        raise click.UsageError("--http has no use for --cert and --key: leave one or the other out")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.DONE))  # until the loop runs: leave no directory behind
    try:
        host, port = _split_address(listen or f"0.0.0.0:{HTTP_PORT if http else HTTPS_PORT}")
        with ExitStack() as cleanup:
            if state is None:
                directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="posd-simulate-")))
            else:
                directory = state
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            ca_file = None
            if not http and cert is None and key is None:
                made = _make_certificate(directory / "tls", host)
                cert, key, ca_file = made.certificate, made.private_key, made.ca_certificate
            settings = Settings(
                **common,
                host=host,
                port=port,
                state=directory,
                certificate=cert,
                private_key=key,
                mdns=not no_mdns,
                mdns_interfaces=mdns_interface,
                ledger_file=ledger,
            )
            lines = Lines(_as_json if as_json or not sys.stdout.isatty() else _as_words)
            cleanup.callback(lines.close)
            asyncio.run(_run(settings, lines, ca_file))
    except (SettingsError, tls.TlsError, OSError) as error:
        _fail(str(error))


async def _run(settings: Settings, lines: "Lines", ca_file: Path | None) -> None:
    """Run the terminal until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        terminal = await stack.enter_async_context(Simulator(settings))
        terminal.ledger.listen(lines.write)
        lines.write(
            {
                "ready": True,
                "serial": settings.serial,
                "base_url": terminal.base_url,
                "ca_file": str(ca_file) if ca_file else None,
            }
        )
        for entry in terminal.ledger:  # the finals that an earlier process was killed over
            lines.write(entry)
        await stop.wait()


class Lines:
    """Writes lines to stdout from a thread: a reader who does not read must not stop the terminal."""

    def __init__(self, text: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._text = text
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING_LINES)
        self._writer = threading.Thread(target=self._write_all, name="stdout", daemon=True)
        self._writer.start()

    def write(self, entry: Entry) -> None:
        """Write what the line function makes of an entry; None writes nothing."""
        text = self._text(entry)
        if text is not None and not self._waiting.full():
            self._waiting.put_nowait(f"{text}\n".encode())

    def close(self) -> None:
        """Give the last lines a moment to be written."""
        if not self._waiting.full():
            self._waiting.put_nowait(None)
            self._writer.join(LAST_LINES_SECONDS)

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                while line:
                    line = line[os.write(1, line) :]  # past sys.stdout, whose lock would hold up the exit
            except OSError:
                return  # nobody reads any more


def _as_json(entry: Mapping[str, Any]) -> str:
    return _ENCODER.encode(entry).decode()


def _as_words(entry: Mapping[str, Any]) -> str | None:
    if "ready" in entry:
        lines = [f"Terminal {click.style(entry['serial'], bold=True)} is ready at {entry['base_url']}."]
        if entry["ca_file"]:
            lines.append(f"Its CA, for posd's ca_file: {entry['ca_file']}")
        return "\n".join([*lines, "Ctrl-C ends it.", ""])
    describe = _WORDS.get(entry["kind"])
    if describe is None:
        return None
    subject = entry.get("client_transaction_id") or entry.get("print_job_id") or ""
    return f"{entry['at'][11:23]}  {_plain(subject)[:8]:8}  {describe(entry)}"


def _plain(text: str) -> str:
    """Leave out of what a stranger sent whatever could steer the screen."""
    return "".join(character for character in text if character.isprintable())


def _start_words(entry: Mapping[str, Any]) -> str:
    reference, way = (
        entry["transaction_reference"],
        {"local": "", "cloud": " over the cloud path"}[entry["access_mode"]],
    )
    what = click.style(entry["operation"], bold=True) + (f" of {reference}" if reference else "")
    detail = f"scenario {entry['scenario']}" if entry["code"] is None else entry["code"]
    return f"{what}{way} answered {entry['http_status']}, {detail}"


def _attempt_words(entry: Mapping[str, Any]) -> str:
    once_more = " once more" if entry["again"] else ""
    text = f"  {entry['status']}{once_more}, delivery {entry['attempt']}: {entry['result']}"
    retry = entry["retry_in_seconds"]
    return text if retry is None else click.style(f"{text}, again in {retry:.1f} s of the terminal's time", fg="yellow")


def _final_words(entry: Mapping[str, Any]) -> str:
    if not entry["charged"]:
        return click.style(f"final: {entry['operation']} {entry['status']}, no money moved", fg="red")
    reference, ticket = entry["transaction_reference"], entry["ticket_number"]
    text = f"final: {entry['operation']} approved, {entry['amount']}, reference {reference}, ticket {ticket}"
    return click.style(text, fg="green")


def _print_words(entry: Mapping[str, Any]) -> str:
    what = f"{click.style('print', bold=True)} {_plain(entry['print_job_id'] or 'of no job')}"
    way = {"local": "", "cloud": " over the cloud path"}[entry["access_mode"]]
    status = entry["http_status"]
    answer = "not answered, connection closed" if status is None else f"answered {status}"
    detail = f"scenario {entry['scenario']}" if entry["code"] is None else entry["code"]
    return f"{what}{way} {answer}, {detail}"


def _printed_words(entry: Mapping[str, Any]) -> str:
    identity = _plain(entry["print_job_id"])
    if entry["text"] is None:
        return click.style(f"not printed: {identity}, {entry['error_code']}", fg="red")
    lines = entry["text"].splitlines()
    more = [f"... and {len(lines) - MAX_PAPER_LINES} more lines"] if len(lines) > MAX_PAPER_LINES else []
    paper = "".join(f"\n{PAPER_MARGIN}{line}".rstrip() for line in [*lines[:MAX_PAPER_LINES], *more])
    return click.style(f"printed: {identity}", fg="green") + paper


def _print_webhook_words(entry: Mapping[str, Any]) -> str:
    again = " once more" if entry["call"] > 1 else ""
    result = entry["result"]
    text = f"  told {entry['status']}{again}: {result}"
    lost = not (isinstance(result, int) and 200 <= result <= 299)
    return click.style(f"{text}, not tried again", fg="yellow") if lost else text


#: A ledger entry's kind -> what a person is told, though not of each question for a print job; `attempt` and `dropped`
#: follow their event, which follows a `final`.
_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "start": _start_words,
    "abort": lambda entry: f"abort answered {entry['http_status']}",
    "search": lambda entry: f"search answered {entry['http_status']}, found {entry['found']}",
    "event": lambda entry: click.style(entry["status"], bold=True),
    "attempt": _attempt_words,
    "dropped": lambda entry: click.style(f"  {entry['status']} given up: {entry['reason']}", fg="red"),
    "final": _final_words,
    "forgotten": lambda entry: click.style(f"forgotten in {entry['status']}: the terminal was stopped", fg="red"),
    "print": _print_words,
    "printed": _printed_words,
    "print_webhook": _print_webhook_words,
    "mdns": lambda entry: f"mDNS: {entry['result']}, {entry['detail']}",
}


def _split_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):
        raise SettingsError(f"--listen {text!r} must be HOST:PORT, for example 127.0.0.1:{HTTPS_PORT} or [::1]:0")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _make_certificate(directory: Path, host: str) -> tls.TlsFiles:
    """Make a certificate for every name and address of this machine; what an earlier run made is kept.

    Somebody may have pinned its fingerprint: it is made anew only where it ends soon or lacks a name or an address.
    """
    names = dict.fromkeys([socket.gethostname(), "localhost"])
    addresses = dict.fromkeys([*tls.local_addresses(), "127.0.0.1", host])  # a wildcard among them does no harm
    made = tls.files(directory)
    with suppress(tls.TlsError):  # there is none yet, or it cannot be used
        info = tls.load(made.certificate, made.private_key).info
        if not tls.renewal_reasons(info, tls.Subjects(tuple(names), tuple(addresses)), datetime.now(UTC)):
            return made
    return tls.init(directory, names=list(names), addresses=list(addresses))


def _fail(message: str) -> NoReturn:
    if sys.stderr.isatty():
        message = click.style(message, fg="red")
    click.echo(f"posd simulate: {message}", err=True)
    sys.exit(ExitCode.USAGE)
