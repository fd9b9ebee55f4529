"""`posd terminals add` and `pin`: trust a terminal's own certificate after an operator has compared it."""

import os
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import msgspec

from posd.base import files
from posd.cli import certificates
from posd.cli.app import times
from posd.cli.app.completion_words import serials
from posd.cli.app.connection import Problem, Unreachable, connect, json_option
from posd.cli.app.context import ExitCode, context
from posd.cli.app.errors import fail
from posd.cli.app.output import Output, Pair, aside
from posd.cli.app.parameters import asks, check_usage, confirm
from posd.cli.certificates import fields, folded, grouped
from posd.cli.explain.catalogue import named, say, translate
from posd.cli.operate.config import act_as_owner, load_or_exit
from posd.config import Config, TerminalConfig, values
from posd.config.layers import FOLDER, read_all, section
from posd.config.reader import whole
from posd.config.values import ReaderContext, UnusableValueError
from posd.tls.certificate import CertificateInfo, digest, read_certificate
from posd.tls.files import shown_certificate

#: Default port of terminals.
DEFAULT_PORT = 6869
#: Context for readers of configuration values that come from an option, and not from a file.
NO_FILE = ReaderContext(Path())
#: Time-out of each step of the connect to a terminal, in seconds.
ASK_SECONDS = 10.0
#: Longest wait until the daemon has loaded a new terminal, in seconds.
TAKE_UP_SECONDS = 10.0
#: Keys that `add` writes about a terminal. A file with other keys was edited by hand, and is not replaced.
WRITTEN = {"serial", "base_url", "public_key_sha256"}


class CannotAsk(Exception):
    """Error if the terminal cannot be called. The message says why, and what to do."""


@click.command()
@click.argument("serial", shell_complete=serials)
@click.option(
    "--address", metavar="HOST[:PORT]", help=f"Its address; otherwise the address that posd knows. [{DEFAULT_PORT}]"
)
@click.option("--fingerprint", metavar="HEX", help="For scripts: the required SHA-256 fingerprint; no question.")
@json_option
@click.pass_context
def pin(ctx: click.Context, output: Output, serial: str, address: str | None, fingerprint: str | None) -> None:
    """Show a terminal's certificate, to compare with its display, and the configuration that trusts it.

    This command trusts nothing and writes no file: it prints the lines for the configuration. Exit code 0: an operator
    confirmed that it is the certificate of the terminal. 1: no operator confirmed it.
    """
    config = load_or_exit(context(ctx).config_path, check_files=False)
    terminal = next((item for item in config.terminals if item.serial == serial), None)
    try:
        expected = None if fingerprint is None else _hex(fingerprint, "--fingerprint")
    except CannotAsk as error:
        fail(output, error, ExitCode.USAGE)
    where, info, key = _look(ctx, output, terminal, serial, address)
    pinned = terminal.fingerprint_sha256 if terminal else ""
    if output.as_json:
        matches = None if expected is None else expected == info.fingerprint_sha256
        result = {
            "terminal": serial,
            "base_url": where,
            **fields(info),
            "fingerprint_sha256": info.fingerprint_sha256,
            "public_key_sha256": key,
            "matches": matches,
            "configured_fingerprint_sha256": pinned or None,
            "toml": _toml(serial, info) if matches else None,
        }
        output.json(msgspec.json.encode(result))
        sys.exit(ExitCode.NOT_DONE if matches is False else ExitCode.DONE)
    _show(output, serial, where, info, key)
    if pinned:
        same = pinned == info.fingerprint_sha256
        words = "same" if same else "another"
        output.line(say("pin", words, pinned=" ".join(grouped(pinned))), style="bold")
    if expected is not None and expected != info.fingerprint_sha256:
        fail(output, say("pin", "another_fingerprint", found=info.fingerprint_sha256, expected=expected))
    if expected is None:
        _compare(output, "--fingerprint HEX")
    _tell(output, config, terminal, serial, info)


@click.command()
@click.argument("serial")
@click.option("--address", metavar="HOST[:PORT]", help=f"Its address; otherwise the announced one. [{DEFAULT_PORT}]")
@click.option("--pin", "pinned", metavar="HEX", help="The required SHA-256 of its certificate, or of its public key.")
@click.option("--yes", is_flag=True, help="Do not ask: --pin was compared before.")
@json_option
@click.pass_context
def add(ctx: click.Context, output: Output, serial: str, address: str | None, pinned: str | None, yes: bool) -> None:
    """Add a terminal: show its certificate, to compare with its display, write it into config.d and reload posd.

    posd then trusts the public key of that certificate, also in a renewed certificate. Exit code 1: nothing was
    written.
    """
    check_usage("add", no_pin=yes and pinned is None, no_yes=not yes and not asks())
    config = load_or_exit(context(ctx).config_path, check_files=False)
    file = _own_file(output, config, serial)
    expected = None if pinned is None else _hex(pinned, "--pin")
    where, info, key = _look(ctx, output, None, serial, address)
    beside = aside() if output.as_json else output
    _show(beside, serial, where, info, key)
    if expected not in (None, info.fingerprint_sha256, key):
        fail(output, say("pin", "another_key", expected=expected))
    if not yes:
        _compare(beside, "--yes --pin HEX")
    lines = [f"serial = {_quoted(serial)}", f'public_key_sha256 = "{":".join(grouped(key))}"']
    lines += [f"base_url = {_quoted(where)}"] if address else []
    _write(output, config, file, "\n".join(["[[terminals]]", *lines, ""]))
    daemon = certificates.find(ctx, config)
    uses = daemon is not None and daemon.reload() and _is_used(ctx, serial)
    document = {"terminal": serial, "base_url": where, "public_key_sha256": key, "file": str(file)}
    output.json(msgspec.json.encode({**document, "fingerprint_sha256": info.fingerprint_sha256, "in_use": uses}))
    output.line(say("pin", "in_use" if uses else "written", file=file))
    output.line(say("pin", "see_it_work", serial=serial))


def _own_file(output: Output, config: Config, serial: str) -> Path:
    """Return the file that `add` writes for a terminal. Raise Failure if it must not or cannot be written."""
    file = config.file.parent / FOLDER / f"terminal-{re.sub('[^A-Za-z0-9_-]', '-', serial)}.toml"
    there = section(config.file, [item.serial for item in config.terminals], serial)[0]
    known = any(item.serial == serial for item in config.terminals)
    own = [layer.document for layer in config.layers.files if layer.file == file]
    plain = own and own[0].keys() == {"terminals"} and all(item.keys() <= WRITTEN for item in own[0]["terminals"])
    if known and not (there == file and plain):
        fail(output, say("pin", "known", serial=serial, file=there))
    if own and not known:
        fail(output, say("pin", "exists", serial=serial, file=file))
    folder = next(folder for folder in file.parents if folder.exists())
    if not os.access(folder, os.W_OK):
        fail(output, say("pin", "as_root", folder=folder, serial=serial))
    return file


def _write(output: Output, config: Config, file: Path, text: str) -> None:
    """Write a file of the configuration as the owner of its folder.

    Raise ConfigError if the new configuration would be invalid. Raise Failure.
    """
    layers = read_all(config.file)
    layers.files = [layer for layer in layers.files if layer.file != file]
    layers.add(file, text)
    whole(layers, check_files=False)
    act_as_owner(file if file.parent.exists() else config.file)
    try:
        file.parent.mkdir(mode=0o755, exist_ok=True)
        files.replace(file, text.encode(), mode=0o644)
    except OSError as error:
        fail(output, say("support", "not_written", file=file, reason=error.strerror))


def _is_used(ctx: click.Context, serial: str) -> bool:
    """Wait until the daemon has a terminal in its fleet. Return False after TAKE_UP_SECONDS."""
    end = time.monotonic() + TAKE_UP_SECONDS
    with connect(ctx) as api:
        while not any(item["serial"] == serial for item in api.get("/terminals").body["terminals"]):
            if time.monotonic() >= end:
                return False
            time.sleep(certificates.LOOK_SECONDS)
    return True


def _look(
    ctx: click.Context, output: Output, terminal: TerminalConfig | None, serial: str, address: str | None
) -> tuple[str, CertificateInfo, str]:
    """Return a terminal's address, its certificate, and the SHA-256 of its public key. Raise Failure."""
    try:
        where = _given(address) if address else _known(ctx, terminal, serial)
        der = _ask(where, terminal)
        return where, read_certificate(der), digest(der, "public key")
    except CannotAsk as error:
        fail(output, say("pin", "not_shown", serial=serial, why=error))
    except UnusableValueError as error:
        fail(output, _words(error), ExitCode.USAGE)
    except ValueError as error:
        fail(output, say("pin", "not_shown", serial=serial, why=say("pin", "no_certificate", error=error)))


def _hex(text: str, option: str) -> str:
    try:
        value = values.fingerprint(text, NO_FILE)
    except UnusableValueError as error:
        raise click.BadParameter(_words(error), param_hint=option) from error
    if not value:
        raise CannotAsk(say("pin", "empty", option=option))
    return value


def _words(error: UnusableValueError) -> str:
    return "; ".join(f"{translate(fault.reason)}; {translate(fault.cure)}" for fault in error.faults)


def _given(text: str) -> str:
    """Parse --address: a host, a host with a port, or a URL. Raise UnusableValueError."""
    if "://" not in text:
        has_port = text.rpartition(":")[2].isdigit() and (text.count(":") == 1 or "]:" in text)
        bare = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
        text = f"https://{bare}" if has_port else f"https://{bare}:{DEFAULT_PORT}"
    return values.url("https")(text, NO_FILE)


def _known(ctx: click.Context, terminal: TerminalConfig | None, serial: str) -> str:
    """Return a terminal's address from the configuration, else from the daemon. Raise CannotAsk."""
    if terminal is not None and terminal.access_mode == "cloud":
        raise CannotAsk(say("pin", "cloud"))
    base_url = terminal.base_url if terminal else ""
    if not base_url:
        try:
            with connect(ctx) as api:
                found = api.get("/terminals", {"all": "true"}).body["terminals"]
            base_url = next((item["base_url"] or "" for item in found if item["serial"] == serial), "")
        except Unreachable as error:
            raise CannotAsk(say("pin", "no_posd", error=error)) from error
        except Problem as problem:
            raise CannotAsk(say("pin", "refused", detail=problem.detail)) from problem
    if not base_url:
        raise CannotAsk(say("pin", "no_address"))
    if urlsplit(base_url).scheme == "http":
        raise CannotAsk(say("pin", "no_tls", url=base_url))
    return base_url


def _ask(where: str, terminal: TerminalConfig | None) -> bytes:
    parts = urlsplit(where)
    host = unquote(parts.hostname or "")  # an IPv6 address without brackets, with its scope
    name = (terminal.server_name if terminal else "") or host.partition("%")[0]
    try:
        return shown_certificate(host, parts.port or 443, seconds=ASK_SECONDS, server_name=name)
    except ConnectionError as error:
        raise CannotAsk(say("pin", "no_answer", url=where, error=error)) from error


def _show(output: Output, serial: str, where: str, info: CertificateInfo, key: str) -> None:
    days = info.days_left(datetime.now(UTC))
    left = f"{days} {named('days')}" if days >= 0 else named("it has ended")
    pairs: list[Pair] = [
        ("shown at", where),
        ("subject", info.subject or say("doctor", "empty_name")),
        ("issuer", named("itself") if info.self_signed else info.issuer),
        ("names", ", ".join((*info.names, *info.addresses)) or named("none")),
        ("valid from", times.day(info.not_before)),
        ("valid until", f"{times.day(info.not_after)} ({left})"),
        *folded("SHA-256", info.fingerprint_sha256),
        *folded("of its key", key),
    ]
    output.panel(say("pin", "title", serial=serial), pairs, "cyan")


def _compare(output: Output, by_script: str) -> None:
    """Ask the operator to compare the fingerprint with the terminal. Exit or raise Failure without a confirmation."""
    if not asks():
        fail(output, say("pin", "cannot_ask", options=by_script), ExitCode.USAGE)
    output.line("Compare it with the fingerprint on the terminal itself (settings, certificate), digit by digit.")
    refused = "Nothing was confirmed: do not trust this certificate."
    confirm(output, "Does the terminal show the same fingerprint?", refused)


def _tell(output: Output, config: Config, terminal: TerminalConfig | None, serial: str, info: CertificateInfo) -> None:
    file = section(config.file, [item.serial for item in config.terminals], serial)[0]
    output.line(say("pin", "put_this" if terminal else "put_new", file=file))
    output.line()
    output.verbatim(*_toml(serial, info).splitlines())


def _toml(serial: str, info: CertificateInfo) -> str:
    fingerprint = ":".join(grouped(info.fingerprint_sha256))
    return f'[[terminals]]\nserial = {_quoted(serial)}\nfingerprint_sha256 = "{fingerprint}"\n'


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
