"""`posd simulate`: run simulated terminals, with settings, certificates and files from the options."""

import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints
from urllib.parse import quote

import click
import msgspec

from posd.base.text import shown
from posd.cli.app.context import ExitCode
from posd.cli.app.output import Output
from posd.cli.app.tables import Layout
from posd.cli.simulator_screen import Keys, OutputThread, as_words
from posd.cli.simulator_screen import as_json as line_as_json
from posd.simulator import Settings, SettingsError, started
from posd.simulator.control import controlled, listed_scenarios
from posd.simulator.ledger import Entry
from posd.simulator.scenario import CHOICE, DEFAULT_PRINT_SCENARIO, DEFAULT_SCENARIO, Kind, payments, prints, text
from posd.tls import issue
from posd.tls.certificate import Subjects, local_addresses, renewal_reasons
from posd.tls.files import TlsError, TlsFiles, files_in, load_pair

#: Ports of the terminal profile's default base URLs.
HTTPS_PORT = 6869
HTTP_PORT = 6868


#: Maximum number of terminals in one process. Each has its own listener, certificate and announcement.
MAX_TERMINALS = 100

#: Text below the list of scenarios: how to choose a scenario.
ASKED_BY = (
    "",
    "amount     a payment of exactly this sum",
    'metadata   {"scenario": NAME} in the request of the payment',
    "reference  NAME, print: included, as external_reference of the print job",
    "live       by a key or the control API: the next payment or print job, or each later one",
)

_FILE = click.Path(dir_okay=False, path_type=Path)

#: Settings that --set accepts.
FURTHER = (
    *("brand", "model", "merchant_id", "wait_seconds", "delivery_timeout", "tip", "unruly", "currency"),
    *("edition", "auth", "business_code", "key_separator", "timestamp_unit", "key_position", "minute_utc_offset"),
    *("window_seconds", "encrypt_replies", "clock_offset", "amount_unit", "answer_amount_unit"),
)
KINDS = {name: kind for name, kind in get_type_hints(Settings).items() if name in FURTHER}


@click.command()
@click.option("--serial", "serials", multiple=True, help="Serial number of a terminal; repeatable. [default: SN-0001]")
@click.option("--terminals", type=click.IntRange(1, MAX_TERMINALS), help="Number of terminals: SN-0001, SN-0002, ...")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"Address to listen on; port 0 takes a free one. Several terminals have consecutive ports. "
    f"[default: 0.0.0.0:{HTTPS_PORT}, with --http {HTTP_PORT}]",
)
@click.option("--http", is_flag=True, help="Plain HTTP instead of HTTPS.")
@click.option("--cert", type=_FILE, help="PEM certificate; without it one is made in the state directory.")
@click.option("--key", type=_FILE, help="PEM private key of --cert.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory for the certificate, undelivered events, the record of ended payments, and print jobs. Several "
    "terminals use DIR/SERIAL. [default: a temporary directory]",
)
@click.option("--trust", type=_FILE, metavar="PEM", help="CA of the webhook receivers. [default: the system's]")
@click.option(
    "--scenario",
    metavar="NAME|FILE.toml",
    default=DEFAULT_SCENARIO,
    show_default=True,
    help='Scenario of a payment without {"scenario": NAME} in its metadata and without a test amount; FILE.toml is a '
    "scenario of your own.",
)
@click.option(
    "--print-scenario",
    metavar="NAME",
    default=DEFAULT_PRINT_SCENARIO,
    show_default=True,
    callback=lambda _context, _option, name: name.removeprefix(CHOICE),  # --list shows names with this prefix
    help=f"Scenario of a print job whose reference is not {CHOICE}NAME.",
)
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    help="People, printer, waiting limit and delivery of events are this many times faster.",
)
@click.option("--virtual", is_flag=True, help="Time advances only by the control API (POST /clock).")
@click.option("--seed", type=int, help="The same seed and the same ids make the same payments.")
@click.option(
    "--set",
    "further",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, pairs: _further(pairs),
    help="A further setting from docs/guides/simulator.md; repeatable. VALUE can be @FILE: its first line. NAME "
    f"is one of {', '.join(FURTHER).replace('_', '-')}.",
)
@click.option("--mdns", is_flag=True, help="Announce over mDNS, on every interface.")
@click.option(
    "--mdns-interface", multiple=True, metavar="ADDR", help="Announce on the interface of this address; repeatable."
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Append what really happened, as JSON lines; with several terminals to FILE/SERIAL.jsonl.",
)
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="Loopback address of the control API, such as 127.0.0.1:6870. It presents cards, pulls the plug, and more.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines even on a screen; --list prints JSON.")
@click.option("--list", "list_scenarios", is_flag=True, help="List the scenarios, and exit.")
@click.option("--show", metavar="NAME", help="Print the file of a scenario, and exit.")
def simulate(
    *,
    serials: tuple[str, ...],
    terminals: int | None,
    listen: str | None,
    http: bool,
    cert: Path | None,
    key: Path | None,
    state: Path | None,
    ledger: Path | None,
    scenario: str,
    control: str | None,
    as_json: bool,
    list_scenarios: bool,
    show: str | None,
    mdns: bool,
    mdns_interface: tuple[str, ...],
    further: dict[str, Any],
    **options: Any,
) -> None:
    """Run one or several simulated card terminals that use the real wire format.

    A terminal runs all operation types, and answers abort and search, on the paths of the local network and of the
    cloud. With --mdns it announces itself. A terminal delivers events with the retry policy of real terminals. It
    replies 422 to a reference that is unknown, replaced, used up or of the wrong kind. It prints one job at a time,
    shows the paper, and reports the end of each job once. With --set auth=hmac it refuses calls without a correct
    signature or with an old timestamp.

    You select a fault by --scenario, the payment's metadata, a test amount, a key or the control API. --list shows all
    faults.

    Ctrl-C ends it. After a kill and a new start with the same --state, a terminal has lost only the payment in
    progress: it delivers queued events, prints waiting jobs, knows every reference, and finds every ended payment in a
    search.
    """
    if http and (cert or key):
        raise click.UsageError("--http does not use --cert and --key: omit one or the other")
    if terminals is not None and serials:
        raise click.UsageError("--terminals makes the serials: give it or --serial, not both")
    if options["virtual"] and control is None and show is None and not list_scenarios:
        raise click.UsageError("--virtual needs --control: time advances only by POST /clock")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.DONE))  # a normal exit removes temporary directories
    try:
        if show is not None:
            show_file(show)
            return
        if list_scenarios:
            show_list(as_json=as_json)
            return
        host, port = split_address(
            listen or f"0.0.0.0:{HTTP_PORT if http else HTTPS_PORT}", "--listen", f"127.0.0.1:{HTTPS_PORT} or [::1]:0"
        )
        with ExitStack() as cleanup:
            directory = state or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="posd-simulate-")))
            common = Settings(
                **options,
                **further,
                **_chosen(scenario),
                host=host,
                port=port,
                certificate=cert,
                private_key=key,
                state=directory,
                ledger_file=ledger,
                mdns=mdns or bool(mdns_interface),
                mdns_interfaces=mdns_interface,
            )
            names = serials or [f"SN-{number:04}" for number in range(1, (terminals or 1) + 1)]
            settings = make(names, common, http=http)
            people = sys.stdout.isatty() and not as_json
            lines = OutputThread(as_words if people else line_as_json)
            cleanup.callback(lines.close)
            asyncio.run(_run(settings, control, lines, keys=people and sys.stdin.isatty()))
    except (SettingsError, TlsError, OSError) as error:
        Output(as_json=as_json).note(f"posd simulate: {error}", style="red")
        sys.exit(ExitCode.USAGE)


async def _run(settings: Sequence[Settings], control: str | None, lines: OutputThread, *, keys: bool) -> None:
    """Run the terminals until SIGTERM, SIGINT or SIGHUP (a closed window)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)  # ignored under nohup
    for number in (signal.SIGTERM, signal.SIGINT, *hung_up):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        terminals = await stack.enter_async_context(started(settings))
        control_url = None
        if control is not None:
            api = controlled(terminals, *split_address(control, "--control", "127.0.0.1:6870"))
            control_url = await stack.enter_async_context(api)
        several = len(terminals) > 1
        for serial, terminal in terminals.items():
            ca_file = terminal.settings.ca_certificate
            ready = {
                "ready": True,
                "serial": serial,
                "base_url": terminal.base_url,
                "ca_file": str(ca_file) if ca_file else None,
                "control": control_url,
            }
            lines.write(ready)
            write = partial(_write, lines, {"serial": serial} if several else {})
            for entry in terminal.ledger:  # entries from before `listen`
                write(entry)
            terminal.ledger.listen(write)
        if keys:
            await stack.enter_async_context(Keys(list(terminals.values()), lines.say))
        await stop.wait()


def _write(lines: OutputThread, named: Entry, entry: Entry) -> None:
    lines.write({**named, **entry})


def _further(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the settings in the values of --set. Raise BadParameter."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        kind = KINDS.get(name.replace("-", "_"))
        if kind is None:
            raise click.BadParameter(f"{shown(name)} is not a setting; --help lists them")
        try:
            value = _first_line(value[1:]) if value.startswith("@") else value
            found[name.replace("-", "_")] = msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as error:
            words = [word for part in (kind, *get_args(kind)) for word in get_args(part) if isinstance(word, str)]
            raise click.BadParameter(f"{name}: {' or '.join(words) or error}") from error
    return found


def _first_line(file: str) -> str:
    """Return the first line of a file: a secret, which a command line would show to other users."""
    try:
        line = Path(file).read_text(encoding="utf-8").split("\n", 1)[0].strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise click.BadParameter(f"cannot read {shown(file)}: {reason}") from error
    if not line:
        raise click.BadParameter(f"the first line of {shown(file)} is empty")
    return line


def _chosen(scenario: str) -> dict[str, Any]:
    """Return the setting for a scenario: `scenario` for a name, `scenario_file` for a path."""
    if scenario.endswith(".toml") or "/" in scenario:
        return {"scenario_file": Path(scenario)}
    return {"scenario": scenario}


def make(serials: Sequence[str], common: Settings, *, http: bool) -> list[Settings]:
    """Return the settings of each terminal, and create their directories and certificates.

    `common`: settings that they share. A single terminal uses the state directory and the ledger file as given. Of
    several terminals, each has its own subdirectory and ledger file, named by its serial, and its own port. Raise
    SettingsError, TlsError and OSError.
    """
    made = []
    for number, serial in enumerate(serials):
        state, ledger = common.state, common.ledger_file
        if len(serials) > 1:
            state = state / _file_name(serial)
            if ledger is not None:
                ledger.mkdir(parents=True, exist_ok=True)
                ledger = ledger / f"{_file_name(serial)}.jsonl"
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        port = common.port + number if common.port else 0
        own = replace(common, serial=serial, port=port, state=state, ledger_file=ledger)
        made.append(own if http or own.certificate is not None else _with_certificate(own))
    return made


def _with_certificate(settings: Settings) -> Settings:
    made = _make_certificate(settings.state / "tls", settings.host)
    return replace(
        settings,
        certificate=made.certificate,
        private_key=made.private_key,
        ca_certificate=made.ca_certificate,
        ca_private_key=made.ca_key,
    )


def split_address(text: str, option: str, example: str) -> tuple[str, int]:
    """Split HOST:PORT. Raise SettingsError, whose message has `option` and `example`."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):
        raise SettingsError(f"{option} {text!r} must be HOST:PORT, for example {example}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _file_name(serial: str) -> str:
    """Return a file name for a serial. The name has no slash or dot, so it cannot leave its directory."""
    return quote(serial, safe="").replace(".", "%2E")


def _make_certificate(directory: Path, host: str) -> TlsFiles:
    """Create a certificate for every name and address of this machine, unless an earlier run has left a usable one.

    A client may have pinned that certificate. So the certificate is replaced only if it ends soon, or lacks a name or
    an address.
    """
    names = dict.fromkeys([socket.gethostname(), "localhost"])
    addresses = dict.fromkeys([*local_addresses(), "127.0.0.1", host])  # `host` may be a wildcard, which is harmless
    made = files_in(directory)
    with suppress(TlsError):  # there is no certificate yet, or it is unusable
        now = datetime.now(UTC)
        info = load_pair(made.certificate, made.private_key, now).info
        if not renewal_reasons(info, Subjects(tuple(names), tuple(addresses)), now):
            return made
    return issue.init(directory, names=list(names), addresses=list(addresses))


def show_list(*, as_json: bool) -> None:
    """Print the scenarios, and how to choose each: as a table, in a pipe as lines with tabs, or as JSON."""
    output = Output(as_json=as_json)
    scenarios = listed_scenarios()
    if as_json:
        output.json(msgspec.json.encode(scenarios))
        return
    rows = [
        (
            item["external_reference"] or item["name"],
            item["amount"] or "",
            "metadata" if item["metadata"] else "reference" if item["external_reference"] else "live",
            item["summary"],
            item["when"],
        )
        for item in scenarios
    ]
    columns = ("name", "amount", "or by", "what happens", "when, in a real shop")
    visible = slice(-1) if output.narrow else slice(None)
    output.table(columns[visible], [row[visible] for row in rows], Layout(whole="name"))
    for line in ASKED_BY if output.rich else ():
        output.line(line)


def show_file(name: str) -> None:
    """Print the file of a shipped scenario. A name with the prefix `print:` is a print scenario."""
    plain = name.removeprefix(CHOICE)
    kind: Kind = "print" if name.startswith(CHOICE) else "payment"
    if plain not in (prints() if kind == "print" else payments()):
        raise click.BadParameter(f"there is no scenario {name}; posd simulate --list shows them", param_hint="--show")
    click.echo(text(plain, kind), nl=False)
