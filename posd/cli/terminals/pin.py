"""`posd terminals pin`: trust one terminal's own certificate, once a person has compared it with the terminal."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import click
import msgspec

from posd import tls
from posd.cli.app import times
from posd.cli.app.completion_words import serials
from posd.cli.app.connection import Problem, Unreachable, connect, json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output, Pair
from posd.cli.operate.config import load_or_exit
from posd.cli.tls.settings import fail, fields, grouped
from posd.config import Config, TerminalConfig, values
from posd.config.lines import section
from posd.config.values import Base, UnusableValueError
from posd.tls.served import NotShown, shown_certificate

#: Where terminals listen unless something says otherwise.
DEFAULT_PORT = 6869
#: What readers of values need to know of a file, where there is none: no path is read here.
NO_FILE = Base(Path())
#: Longest for the terminal to show its certificate, in seconds a step.
ASK_SECONDS = 10.0


class CannotAsk(Exception):
    """The terminal cannot be asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the terminal is asked, as in `https://192.168.1.50:6869`."""

    base_url: str

    @property
    def host(self) -> str:
        """The host, an IPv6 address without brackets, with its scope."""
        return unquote(urlsplit(self.base_url).hostname or "")

    @property
    def port(self) -> int:
        """The port."""
        return urlsplit(self.base_url).port or 443


@click.command()
@click.argument("serial", shell_complete=serials)
@click.option(
    "--address", metavar="HOST[:PORT]", help=f"Where it is; else the address that posd knows. [{DEFAULT_PORT}]"
)
@click.option(
    "--fingerprint", metavar="HEX", help="For scripts: the SHA-256 fingerprint that it must have; no question."
)
@json_option
@click.pass_context
def pin(ctx: click.Context, output: Output, serial: str, address: str | None, fingerprint: str | None) -> None:
    """Show a terminal's certificate, to compare with the terminal itself, and say what to configure to trust it.

    This command trusts nothing and writes no file: it prints the lines for the configuration. Exit code 0: it is the
    certificate of the terminal; 1: it is not, or no person said that it is.
    """
    config = load_or_exit(context(ctx).config_path, check_files=False)
    terminal = next((item for item in config.terminals if item.serial == serial), None)
    try:
        expected = None if fingerprint is None else _hex(fingerprint)
        where = _given(address) if address else _known(ctx, terminal, serial)
        info = tls.describe_der(_ask(where, terminal))
    except (CannotAsk, tls.TlsError) as error:
        fail(output, f"cannot show the certificate of terminal {serial}: {error}")
    except UnusableValueError as error:
        fail(output, _words(error), ExitCode.USAGE)
    pinned = terminal.fingerprint_sha256 if terminal else ""
    if output.as_json:
        matches = None if expected is None else expected == info.fingerprint_sha256
        result = {
            "terminal": serial,
            "base_url": where.base_url,
            **fields(info),
            "fingerprint_sha256": info.fingerprint_sha256,
            "matches": matches,
            "configured_fingerprint_sha256": pinned or None,
            "toml": _toml(serial, info) if matches else None,
        }
        output.json(msgspec.json.encode(result))
        sys.exit(ExitCode.NOT_DONE if matches is False else ExitCode.DONE)
    _show(output, serial, where, info)
    if pinned:
        same = pinned == info.fingerprint_sha256
        output.line("The configuration pins this certificate already." if same else _another(pinned), style="bold")
    if not _confirmed(output, info, expected):
        fail(output, "nothing was confirmed: do not trust this certificate")
    _tell(output, config, terminal, serial, info)


def _hex(text: str) -> str:
    try:
        value = values.fingerprint(text, NO_FILE)
    except UnusableValueError as error:
        raise click.BadParameter(_words(error), param_hint="--fingerprint") from error
    if not value:
        raise CannotAsk("--fingerprint is empty; leave it out to compare by eye")
    return value


def _words(error: UnusableValueError) -> str:
    return "; ".join(f"{fault.reason}; {fault.cure}" for fault in error.faults)


def _given(text: str) -> Address:
    """Read --address: a host, a host with a port, or a URL. Raise UnusableValueError."""
    if "://" not in text:
        has_port = text.rpartition(":")[2].isdigit() and (text.count(":") == 1 or "]:" in text)
        bare = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
        text = f"https://{bare}" if has_port else f"https://{bare}:{DEFAULT_PORT}"
    return Address(values.url("https")(text, NO_FILE))


def _known(ctx: click.Context, terminal: TerminalConfig | None, serial: str) -> Address:
    """Return the address that the configuration or the daemon knows. Raise CannotAsk."""
    give = "give its address with --address"
    if terminal is not None and terminal.access_mode == "cloud":
        raise CannotAsk("it is called through the cloud, and it is the service whose certificate counts")
    base_url = terminal.base_url if terminal else ""
    if not base_url:
        try:
            with connect(ctx) as api:
                base_url = api.get(f"/terminals/{quote(serial, safe='')}").body["base_url"] or ""
        except Unreachable as error:
            raise CannotAsk(f"its address is not configured, and {error}; or {give}") from error
        except Problem as problem:
            raise CannotAsk(f"{problem.detail}; {give}") from problem
    if not base_url:
        raise CannotAsk(f"posd knows no address of it: is it switched on and in this network? Else {give}")
    if urlsplit(base_url).scheme == "http":
        raise CannotAsk(f"it is called without TLS ({base_url}); write https:// where it speaks TLS")
    return Address(base_url)


def _ask(where: Address, terminal: TerminalConfig | None) -> bytes:
    name = (terminal.server_name if terminal else "") or where.host.partition("%")[0]
    try:
        return shown_certificate(where.host, where.port, seconds=ASK_SECONDS, server_name=name)
    except NotShown as error:
        raise CannotAsk(f"{where.base_url} {error}; is the terminal switched on, and is that its address?") from error


def _show(output: Output, serial: str, where: Address, info: tls.CertificateInfo) -> None:
    days = info.days_left(datetime.now(UTC))
    first, *rest = grouped(info.fingerprint_sha256)
    pairs: list[Pair] = [
        ("shown at", where.base_url),
        ("subject", info.subject or "nobody"),
        ("issuer", "itself" if info.issuer == info.subject else info.issuer),
        ("names", ", ".join((*info.names, *info.addresses)) or "none"),
        ("valid from", times.day(info.not_before)),
        ("valid until", f"{times.day(info.not_after)} ({f'{days} days' if days >= 0 else 'it has ended'})"),
        ("SHA-256", first),
        *(("", line) for line in rest),
    ]
    output.panel(f"certificate of terminal {serial}", pairs, "cyan")


def _another(pinned: str) -> str:
    return f"The configuration pins another certificate: {' '.join(grouped(pinned))}"


def _confirmed(output: Output, info: tls.CertificateInfo, expected: str | None) -> bool:
    """Whether a person has compared it: with the terminal, or by giving the fingerprint."""
    if expected is not None:
        if expected != info.fingerprint_sha256:
            fail(output, f"it is another certificate: it has fingerprint {info.fingerprint_sha256}, not {expected}")
        return True
    if not sys.stdin.isatty():
        what = "compare the fingerprint with the one that the terminal itself shows, and give it: --fingerprint HEX"
        fail(output, f"nobody is there to ask; {what}", ExitCode.USAGE)
    output.line("Compare it with the fingerprint on the terminal itself (settings, certificate), digit by digit.")
    return click.confirm("Does the terminal show the same fingerprint?", default=False, err=True)


def _tell(
    output: Output, config: Config, terminal: TerminalConfig | None, serial: str, info: tls.CertificateInfo
) -> None:
    place = "in its section" if terminal else "as a section of its own"
    file = section(config.file, [item.serial for item in config.terminals], serial)
    output.line(f"Put this into {file}, {place}, then reload posd:")
    output.line()
    output.verbatim(*_toml(serial, info).splitlines())
    if any(
        item.serial == serial and config.sources[f"terminals[{index}].server_name"] == "file" and item.server_name
        for index, item in enumerate(config.terminals)
    ):
        output.line()
        output.line("Remove server_name for this terminal: with a fingerprint no name is looked at.")


def _toml(serial: str, info: tls.CertificateInfo) -> str:
    fingerprint = ":".join(grouped(info.fingerprint_sha256))
    return f'[[terminals]]\nserial = {msgspec.json.encode(serial).decode()}\nfingerprint_sha256 = "{fingerprint}"\n'
