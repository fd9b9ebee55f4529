"""`posd terminals find`: look through a subnet for terminals that mDNS does not show, by their certificates."""

import asyncio
import ipaddress
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn

from posd.cli.app.connection import json_option
from posd.cli.app.context import context
from posd.cli.app.errors import Failure
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import DESCRIPTION, Output
from posd.cli.operate.config import load_or_exit
from posd.config import Config, TerminalConfig
from posd.config.lines import section
from posd.terminals import scan, trust
from posd.terminals.scan import Answer, NotScanned, Report, Scan, Wanted

#: Where terminals listen unless the configuration says otherwise.
DEFAULT_PORT = 6869
#: Of a larger network of this machine, the part around its own address is offered.
OFFERED_PREFIX = 24

#: what came of an address that listens -> words.
LISTENING: Mapping[Answer, str] = {
    Answer.NO_TLS: "it does not speak TLS",
    Answer.HANGS: "it did not come to the end of the TLS handshake",
    Answer.TLS: "a certificate that is not looked for",
}


class CannotLook(Exception):
    """That cannot be looked for; the message says why, and what to type instead."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for, and where; `unknowable` are terminals that cannot be recognised: serial -> why."""

    config: Config
    wanted: Sequence[Wanted]
    unknowable: Mapping[str, str]
    subnet: str
    targets: Sequence[str]
    port: int

    def urls(self, report: Report) -> dict[str, str]:
        """Return the base URLs of what was found, by serial."""
        return {serial: f"https://{_bracketed(address)}:{self.port}" for serial, address in report.found.items()}


@click.command()
@click.option("--subnet", metavar="CIDR", help="Where to look, as in 192.168.1.0/24; at most a /22.")
@click.option("--port", type=click.IntRange(1, 65_535), metavar="N", help="Their port; else as configured.")
@click.option("--serial", "serials", multiple=True, metavar="S", help="Look for this terminal only; repeatable.")
@json_option
@click.pass_context
def find(ctx: click.Context, output: Output, subnet: str | None, port: int | None, serials: tuple[str, ...]) -> None:
    """Look for terminals in a subnet by their certificates.

    For when they do not show up by themselves. A terminal is recognised by its fingerprint_sha256, or by its
    server_name where its ca_file vouches for it. Each address gets a TCP connection and a TLS handshake, a few each
    second; no request is sent, and nothing is changed. Ctrl-C stops it. Exit code 0: all were found. 1: not all.
    """
    config = load_or_exit(context(ctx).config_path, as_json=output.as_json, check_files=False)
    try:
        search = _search(config, subnet, port, serials)
    except CannotLook as error:
        raw = msgspec.json.encode({"ok": False, "error": str(error)})
        raise Failure(str(error), ExitCode.USAGE, output, raw) from error
    report = _run(search, output)
    if output.as_json:
        output.json(_document(search, report))
    else:
        _tell(output, search, report)
    sys.exit(ExitCode.DONE if _all_found(search, report) else ExitCode.NOT_DONE)


def _search(config: Config, subnet: str | None, port: int | None, serials: Sequence[str]) -> Search:
    """Return what is to be looked for, and where. Raise CannotLook."""
    asked = _asked(config, serials)
    wanted, unknowable = _wanted(asked, Counter(terminal.server_name for terminal in config.terminals))
    port = port or _port(asked, {item.serial for item in wanted})
    if subnet is None:
        offers = " or ".join(f"--subnet {network} ({name})" for name, network in _offered())
        raise CannotLook(
            f"say where to look: {offers or '--subnet CIDR; this machine is in no private network at the moment'}"
        )
    try:
        network = scan.subnet(subnet)
    except NotScanned as error:
        raise CannotLook(f"cannot look there: {error}") from error
    return Search(config, wanted, unknowable, str(network), list(scan.addresses(network)), port)


def _asked(config: Config, serials: Sequence[str]) -> list[TerminalConfig]:
    """Return the terminals that are meant: those named, or all that are on the local network. Raise CannotLook."""
    fleet = {terminal.serial: terminal for terminal in config.terminals}
    for serial in serials:
        if serial not in fleet:
            known = ", ".join(fleet) or "none"
            raise CannotLook(f"terminal {serial} is not in {config.file} (there: {known}); check the serial")
        if fleet[serial].access_mode == "cloud":
            raise CannotLook(f"terminal {serial} is called through the cloud: it is not looked for on this network")
    named = [fleet[serial] for serial in dict.fromkeys(serials)]
    asked = named or [terminal for terminal in fleet.values() if terminal.access_mode == "local"]
    if not asked:
        raise CannotLook(f"{config.file} names no terminal on the local network; add [[terminals]] with its serial")
    return asked


def _wanted(asked: Sequence[TerminalConfig], names: Counter[str]) -> tuple[list[Wanted], dict[str, str]]:
    """Return what can be looked for, and of the others why not: serial -> reason. Raise CannotLook.

    `names` counts the server_names of the fleet: one that two terminals have tells them not apart.
    """
    wanted, unknowable = [], {}
    for terminal in asked:
        if terminal.fingerprint_sha256:
            wanted.append(Wanted(terminal.serial, terminal.fingerprint_sha256))
        elif not terminal.server_name:
            unknowable[terminal.serial] = "it has neither a fingerprint_sha256 nor a server_name in the configuration"
        elif names[terminal.server_name] > 1:
            unknowable[terminal.serial] = f"its server_name {terminal.server_name} is that of another terminal too"
        else:
            try:
                context = trust.context(terminal.ca_file, "")
            except OSError as error:
                raise CannotLook(f"terminal {terminal.serial} cannot be recognised: {error}") from error
            wanted.append(Wanted(terminal.serial, server_name=terminal.server_name, context=context))
    if not wanted:
        reasons = "; ".join(f"{serial}: {reason}" for serial, reason in unknowable.items())
        raise CannotLook(
            f"no terminal can be recognised ({reasons}). Pin its certificate when it can be reached: "
            f"posd terminals pin {next(iter(unknowable))}"
        )
    return wanted, unknowable


def _port(asked: Sequence[TerminalConfig], wanted: set[str]) -> int:
    """Return the port that the configuration gives the terminals which are looked for. Raise CannotLook."""
    urls = [terminal.base_url for terminal in asked if terminal.serial in wanted]
    ports = sorted({(urlsplit(url).port or 443) if url else DEFAULT_PORT for url in urls})
    if len(ports) > 1:
        raise CannotLook(
            f"the terminals have different ports in the configuration ({', '.join(map(str, ports))}); look for those "
            "of one port at a time: --port N, or --serial S"
        )
    return ports[0]


def _offered() -> Iterator[tuple[str, str]]:
    """Yield the private IPv4 networks of this machine: name of the interface and subnet, loopback left out."""
    import ifaddr

    for adapter in ifaddr.get_adapters():
        for entry in adapter.ips:
            if not isinstance(entry.ip, str) or ipaddress.ip_address(entry.ip).is_loopback:
                continue
            for prefix in (entry.network_prefix, OFFERED_PREFIX):
                with suppress(NotScanned):
                    yield adapter.nice_name, str(scan.subnet(f"{entry.ip}/{prefix}"))
                    break


def _run(search: Search, output: Output) -> Report:
    """Scan until all are found or Ctrl-C is pressed; return what was seen."""
    total = len(search.targets)
    with output.progress("looking", DESCRIPTION, BarColumn(), MofNCompleteColumn(), total=total) as update:

        def show(report: Report) -> None:
            update(completed=report.tried, description=f"looking, {len(report.found)} found")

        scanning = Scan(search.targets, search.port, search.wanted, show)
        with suppress(KeyboardInterrupt):
            asyncio.run(scanning.run())
    return scanning.report


def _tell(output: Output, search: Search, report: Report) -> None:
    """Say what was looked at, what was found, and what goes into the configuration."""
    answers = report.answers
    output.line(
        f"Tried {report.tried} of {len(search.targets)} addresses of {search.subnet} on port {search.port}: "
        f"{len(report.listening)} listen, {answers[Answer.TLS]} of them with TLS; {answers[Answer.REFUSED]} refuse, "
        f"{answers[Answer.SILENT]} are silent."
    )
    if report.unroutable:
        output.line("This machine has no way to some of them: is it in that network?", "yellow")
    for seen in sorted(report.listening, key=lambda seen: ipaddress.ip_address(seen.address).packed):
        output.line(f"{seen.address}: {f'terminal {seen.serial}' if seen.serial else LISTENING[seen.answer]}", indent=2)
        if seen.fingerprint_sha256:
            output.line(f"fingerprint {seen.fingerprint_sha256}", indent=4)
    configured = {terminal.serial: terminal.base_url.rstrip("/") for terminal in search.config.terminals}
    moved = {serial: url for serial, url in search.urls(report).items() if url != configured[serial]}
    for item in search.wanted:
        if item.serial in moved:
            file = section(search.config.file, list(configured), item.serial)
            output.line(f"Terminal {item.serial} is found. In its [[terminals]] of {file} put:", "green")
            output.line(f'base_url = "{moved[item.serial]}"', indent=4)
        elif item.serial in report.found:
            output.line(f"Terminal {item.serial} is where the configuration says: {configured[item.serial]}", "green")
        else:
            output.line(f"Terminal {item.serial} was not found.", "yellow")
    for serial, reason in search.unknowable.items():
        output.line(f"Terminal {serial} was not looked for: {reason} (posd terminals pin {serial}).", "yellow")
    if not report.whole and not _all_found(search, report):
        output.line("It was stopped before the end.", "yellow")
    if moved:
        output.line(
            "Then: sudo systemctl reload posd. A base_url counts more than what a terminal announces: let the router "
            "give the terminal this address for good, or remove the line once it announces itself again."
        )


def _all_found(search: Search, report: Report) -> bool:
    return all(item.serial in report.found for item in search.wanted)


def _document(search: Search, report: Report) -> bytes:
    urls = search.urls(report)
    document: dict[str, Any] = {
        "ok": _all_found(search, report),
        "subnet": search.subnet,
        "port": search.port,
        "addresses": len(search.targets),
        "tried": report.tried,
        "answers": report.answers,
        "listening": report.listening,
        "terminals": [{"serial": item.serial, "base_url": urls.get(item.serial)} for item in search.wanted],
        "not_looked_for": [{"serial": serial, "reason": reason} for serial, reason in search.unknowable.items()],
    }
    return msgspec.json.encode(document)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
