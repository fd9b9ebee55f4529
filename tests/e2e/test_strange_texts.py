"""posd shows texts of strangers as text in each command, the log, the metrics, and the report (architecture, Rules).
Terminals, a till, an operator and a device outside the fleet send texts that try to forge output. A new command needs a
row in the table, or a test fails.
"""

import asyncio
import csv
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import pytest_asyncio
from zeroconf import IPVersion
from zeroconf.asyncio import AsyncZeroconf

from manual.pages import pages
from posd.cli.explain.catalogue import events
from posd.cli.operate.database import MARGIN
from tests.e2e.test_metrics import scrape
from tests.rig.commands import Done, posd, posd_on_terminal, posd_process
from tests.rig.daemon import Daemon, running
from tests.rig.events import event
from tests.rig.exposition import read
from tests.rig.https import deliver
from tests.rig.shop import AMOUNT, QUIET, acknowledging, answering, hanging_up
from tests.rig.strange import ALL, FORGED, assert_lines, assert_screen
from tests.rig.streams import Reply
from tests.rig.terminal import Request, Script, ScriptedTerminal, acknowledgement, http, scripted_terminal
from tests.rig.waits import until
from tests.terminals.announcing import DISCOVERY, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

TERMINALS = 12
#: Text for short fields, such as a sale, a reference, or an operator's name.
SHORT = f"\x1b[2J\u202e=1\n{FORGED}\r\t\x9b;={FORGED}"


@dataclass
class Place:
    """A daemon with running payments, and the ids of all records by state."""

    daemon: Daemon
    terminal: ScriptedTerminal
    serials: list[str]
    ids: dict[str, str] = field(default_factory=dict)

    async def charge(self, name: str, script: Callable[[str], Script] = acknowledging, **request: Any) -> Reply:
        """Start a payment under a name, on its own terminal."""
        identity, serial = str(uuid4()), self.serials.pop()
        self.ids[name], self.ids[f"terminal of {name}"] = identity, serial
        self.terminal.start = script(serial)
        body = {"terminal": serial, "amount": {"subtotal_iva0": 11.2}, "metadata": {"table": ALL, ALL: [ALL]}} | request
        return await self.daemon.call("PUT", f"/transactions/{identity}", body)

    async def event(self, name: str, status: str, **changes: Any) -> int:
        """Send the callbacks of a payment's terminal, with every text replaced."""
        document = strange(event(self.ids[name], status, serial=self.ids[f"terminal of {name}"], **changes))
        return await self.deliver(name, json.dumps(document).encode())

    async def deliver(self, name: str, body: bytes) -> int:
        request = next(item for item in self.terminal.requests if self.ids[name].encode() in item.body)
        return await deliver(request.callback, body, self.daemon.ca)


#: Members of an event that posd must be able to read.
READ = {"event_id", "occurred_at", "status", "client_transaction_id", "serial_number", "previous_status", "merchant_id"}


def strange(value: Any, name: str = "") -> Any:
    """Return an event with strange texts. Texts that posd must read stay unchanged."""
    if isinstance(value, dict):
        return {key: strange(item, key) for key, item in value.items()}
    return ALL if isinstance(value, str) and name not in READ else value


async def settle_all(place: Place) -> None:
    """Create records of every kind that commands show."""
    posd, terminal = place.daemon, place.terminal
    assert (await place.charge("approved", sale=SHORT)).status == 201
    assert await place.event("approved", "CARD_PRESENTED") == 200
    assert await place.event("approved", "APPROVAL", previous_status=ALL) == 200
    await place.charge("declined")
    assert await place.event("declined", "DECLINED") == 200
    await place.charge("refused", lambda _: answering(409, {"error": ALL, "message": ALL, "status": ALL}))
    await place.charge("doubtful", lambda _: hanging_up)
    terminal.search = answering(500, f"<html>{ALL}</html>".encode())
    await posd.call("POST", f"/transactions/{place.ids['doubtful']}/reconcile")
    await place.charge("moving")
    assert await place.event("moving", SHORT) == 200, "posd accepts an event with an unknown status"
    await place.charge("decided")
    word = {"operator": SHORT, "note": ALL[:1000]}
    for call, more in (("release", {}), ("resolve", {"result": "declined"})):
        path = f"/transactions/{place.ids['decided']}/{call}"
        assert (await posd.call("POST", path, word | more, socket=posd.admin_socket)).status == 200
    await place.charge("set aside")
    assert await place.deliver("set aside", f'{{"status": "{FORGED}\n{FORGED}\x1b[2J'.encode()) == 400
    await place.charge("of another")
    other = event(place.ids["of another"], "DECLINED", serial=SHORT)
    await place.deliver("of another", json.dumps(other).encode())
    terminal.print_start = None
    for name in ("printed", "printing"):
        place.ids[name] = f"job-{uuid4()}"
        body = {"document": {"text": ALL}, "external_reference": SHORT, "terminal": place.serials[0]}
        assert (await posd.call("PUT", f"/print-jobs/{place.ids[name]}", body)).status == 201
    requests = {item.json["printJobId"]: item for item in terminal.prints}
    said = {"externalReference": ALL, "errorMessage": ALL, "errorCode": ALL, "error": {"code": ALL, "message": ALL}}
    for name, status in (("printed", "FAILED"), ("printing", SHORT)):
        document = {"printJobId": place.ids[name], "status": status} | said
        await deliver(requests[place.ids[name]].print_callback, json.dumps(document).encode(), posd.ca)


def going_on(serial: str) -> Script:
    """Return the script of a terminal for all requests of commands."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(200, acknowledgement(request, serial)) if request.body else http(404, ALL.encode()))

    return script


async def announced(place: Place) -> None:
    """Wait until the daemon lists the device outside the fleet."""

    async def listed() -> bool:
        found = (await place.daemon.call("GET", "/terminals?all=true")).json["terminals"]
        return any(not item.get("in_fleet", True) for item in found)

    await until(listed)


#: Announcements of devices outside the fleet, as serial, brand and model.
STRANGERS = (
    ("OUT-1", "x\n" + FORGED, "\x1b[2J" + FORGED),
    ("OUT-2", f"={FORGED}", f"\u202e{FORGED}"),
    (SHORT, SHORT, SHORT),
)


@asynccontextmanager
async def strangers() -> AsyncIterator[None]:
    """Announce devices that no configuration names."""
    network = AsyncZeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)
    try:
        for serial, brand, model in STRANGERS:
            info = service(
                f"x{FORGED} {STRANGERS.index((serial, brand, model))}",
                6869,
                {"serial": serial, "brand": brand, "model": model},
            )
            await network.async_register_service(info, cooperating_responders=True)
        yield
    finally:
        await network.async_unregister_all_services()
        await network.async_close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    with TemporaryDirectory(prefix="posd-") as name:
        home = Path(name)
        async with scripted_terminal(home, ports=TERMINALS) as terminal, strangers():
            serials = [f"SN-{number:02}" for number in range(TERMINALS)]
            entries = [terminal.entry(serial, url) for serial, url in zip(serials, terminal.base_urls, strict=True)]
            extra = f'{QUIET}[metrics]\ntextfile = "{home}/posd.prom"\ntextfile_seconds = 1\n'
            async with running(home, "".join(entries), extra, DISCOVERY) as daemon:
                place = Place(daemon, terminal, serials)
                await settle_all(place)
                terminal.start = going_on(place.ids["terminal of approved"])
                await announced(place)
                yield place


#: Arguments of one call. `{name}` stands for the id of the record with this name.
Call = str
RECORDS = ("approved", "declined", "refused", "doubtful", "moving", "decided", "of another", "printing", "printed")
#: Command -> calls in this test, or the reason why the command has no calls.
COMMANDS: Mapping[str, Sequence[Call] | str] = {
    "run": "its log is read below",
    "demo": "its terminal, till and daemon are its own",
    "simulate": "tests/simulator/test_process.py: what posd or another sends it",
    "charge": ("11.20 --terminal {terminal of approved} --no-wait", "1 --terminal {terminal of doubtful}"),
    "preauth": ("11.20 --terminal {terminal of doubtful}",),
    "reauth": ("{approved} 12",),
    "capture": ("{approved} 12",),
    "tip": ("{approved} 1", "{declined} 1"),
    "void": ("{declined}",),
    "refund": ("{declined}",),
    "await": ("{approved}", "{declined}", "{refused}", "{doubtful} --timeout 0.2", "{moving} --timeout 0.5"),
    "abort": ("{moving}", "{approved}"),
    "show": tuple(f"{{{name}}}" for name in RECORDS),
    "list": ("", "--attention", "--open", "--all", "--print-jobs", "--print-jobs --attention"),
    "report": ("--timezone UTC --metadata table", "--timezone UTC --csv --metadata table", "--timezone UTC --html -"),
    "print": ("{file} --terminal {terminal of approved} --no-wait",),
    "reconcile": ("{doubtful}", "{moving}"),
    "release": ("{approved} --note x --yes",),
    "resolve": ("{approved} declined --note x --yes",),
    "acknowledge": ("{approved} gap --note x --yes", "{moving} unknown_status --note x --yes"),
    "quarantine": ("", "1", "--all", "--apply"),
    "terminals": ("", "--all"),
    "terminals add": ("{serial} --yes --pin {fingerprint}",),
    "terminals pin": ("{serial} --fingerprint {fingerprint}",),
    "terminals commission": ("{terminal of approved} --yes --no-print --no-pay", "SN-NOT-THERE --yes"),
    "terminals identity": ("{terminal of approved}", "SN-NOT-THERE"),
    "clock": ("",),
    "clock confirm": ("--operator Ana --note x",),
    "watch": "it draws on a screen: tests/cli/watch/test_live.py",
    "status": ("",),
    "logs": ("{log}", "{log} --traceback", "{log} --level warning"),
    "metrics": ("",),
    "config": "a group",
    "config check": ("",),
    "config show": ("", "--profile"),
    "tls": "a group",
    "tls init": ("--force",),
    "tls status": ("",),
    "tls renew": ("",),
    "tls ca": ("--fingerprint",),
    "backup": ("{directory}/copy.db",),
    "restore": ("{directory}/none.db --yes",),
    "verify": ("", "{directory}/copy.db"),
    "prune": ("--older-than 0 --dry-run",),
    "doctor": ("",),
    "support": ("{directory}/support.tar.gz --yes",),
    "relay": "its log has nothing of a stranger: tests/relay",
    "collect": "it asks head office's tables: tests/collect/test_commands.py",
    "collect totals": "the same",
    "collect ids": "the same",
    "collect retire": "the same",
    "explain": "its texts are its own; a code that it does not know: tests/cli/test_explain.py",
    "openapi": "it asks no daemon",
    "completion": "it asks no daemon; what it offers: tests/cli/test_strange_texts.py",
}
#: Commands whose output must contain a stranger's text.
SHOWING = (
    *("show {approved}", "await {declined}", "report --timezone UTC --metadata table"),
    *("show {printed}", "terminals --all", "logs {log}"),
)
#: Acknowledgement of an attention that does not exist.
ACKNOWLEDGED = {"code": SHORT, "operator": "Ana", "note": "looked"}


def calls() -> list[tuple[str, str]]:
    return [(name, call) for name, rows in COMMANDS.items() if not isinstance(rows, str) for call in rows]


async def test_every_command_has_a_row_in_the_table_of_this_test() -> None:
    assert {" ".join(page.path[1:]) for page in pages()} - {""} == set(COMMANDS)


def arguments(place: Place, command: str, call: str) -> tuple[str, ...]:
    home = place.daemon.directory
    (home / "receipt.txt").write_text("Thank you")
    (home / "posd.log").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in place.daemon.lines))
    port = place.terminal.base_url.rsplit(":", 1)[1]
    known = place.ids | {"file": f"{home}/receipt.txt", "log": f"{home}/posd.log", "directory": str(home)}
    known |= {"port": port, "serial": "SN-00", "fingerprint": place.terminal.fingerprint or "00" * 32}
    return (*command.split(), *(word.format_map(known) for word in _words(call)))


def _words(call: str) -> list[str]:
    """Split a call at spaces outside braces."""
    words, depth = [""], 0
    for char in call:
        depth += (char == "{") - (char == "}")
        if char == " " and not depth:
            words.append("")
        else:
            words[-1] += char
    return [word for word in words if word]


async def run_here(place: Place, *given: str) -> Done:
    """Run a command without blocking the terminals of this process."""
    daemon = place.daemon
    if given[0] == "await":  # the reading thread of a wait ends only with its process
        given = ("--socket", str(daemon.admin_socket), *given)
        return await asyncio.to_thread(posd_process, *given, config=daemon.config_file)
    return await asyncio.to_thread(posd, *given, config=daemon.config_file, socket=daemon.admin_socket)


@pytest.mark.slow
async def test_no_command_lets_a_stranger_forge_a_line_or_a_cell(place: Place) -> None:
    faults = {}
    for command, call in calls():
        given = arguments(place, command, call)
        for options in ((), ("--json",)):
            done = await run_here(place, *given, *options)
            try:
                judge((*given, *options), done)
            except AssertionError as error:
                faults[" ".join((command, call, *options))] = str(error)[:300]
    assert not faults, "\n".join(f"{call}: {fault}" for call, fault in faults.items())


def assert_csv(written: str) -> None:
    """Assert that a text is CSV with one line for each row. Assert that no cell is a formula, whichever separator a
    program uses.
    """
    whole = written.replace("\r\n", "\n")
    assert_lines(whole)
    assert len(list(csv.reader(io.StringIO(written, newline="")))) == len(whole.rstrip("\n").split("\n"))
    for separator in ",;":
        for row in csv.reader(io.StringIO(written, newline=""), delimiter=separator):
            for cell in (cell.lstrip(' "') for cell in row):
                assert not cell.startswith(("=", "@", "\N{FULLWIDTH EQUALS SIGN}")), cell
                signed = re.fullmatch(r"[+-][0-9.]+([,;].*)?", cell, re.DOTALL)  # an amount of posd
                assert signed or not cell.startswith(("+", "-")), cell


class Page(HTMLParser):
    """A page of posd. It has no script, image or handler."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "iframe", "a", "form"), tag
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")], attrs


def judge(given: tuple[str, ...], done: Done) -> None:
    """Raise AssertionError if an output does not have its expected form."""
    assert "a fault of posd" not in done.stderr, done.stderr
    assert_lines(done.stderr)
    if done.returncode == 2:
        return
    if "--json" in given:
        for document in done.stdout.splitlines() if "\n{" in done.stdout else filter(None, [done.stdout]):
            json.loads(document)
    elif "--csv" in given:
        assert_csv(done.stdout)
    elif "--html" in given:
        assert_lines(done.stdout)
        Page().feed(done.stdout)
    elif given[:2] == ("quarantine", "1"):  # the body has several lines with a margin, and no line of posd has a margin
        said, body = done.stdout.split(" bytes:\n")
        assert_lines(said)
        assert body
        assert all(line.startswith(MARGIN) for line in body.splitlines())
    else:
        assert_lines(done.stdout, tabs=True)


async def test_the_texts_of_strangers_are_still_shown(place: Place) -> None:
    for command in SHOWING:
        given = arguments(place, "", command)
        assert FORGED in (await run_here(place, *given)).stdout, f"{command} shows no text of a stranger"


#: Calls whose screen output is tested in each run. Other calls are tested with `--whole`.
QUICK = {("show", "{approved}"), ("await", "{moving} --timeout 0.5"), ("terminals", "--all"), ("list", "--all")}


@pytest.mark.parametrize(
    ("command", "call"), [call if call in QUICK else pytest.param(*call, marks=pytest.mark.slow) for call in calls()]
)
async def test_no_command_lets_a_stranger_control_the_screen(place: Place, command: str, call: str) -> None:
    given = arguments(place, command, call)
    daemon = place.daemon
    for options in ((), ("--json",)) if (command, call) not in QUICK else ((),):
        words = ("--config", str(daemon.config_file), *given, *options)
        called = partial(posd_on_terminal, *words, socket=daemon.admin_socket, columns=120, types="y\n")
        assert_screen((await asyncio.to_thread(called)).written)


async def test_a_fact_is_one_log_line_whatever_its_text(place: Place) -> None:
    for line in place.daemon.lines:
        # `Daemon` has parsed each line as JSON, and checked that the line is printable
        assert line["event"] in events(), line
    assert FORGED in json.dumps(place.daemon.lines)


async def test_the_metrics_have_no_text_of_a_stranger(place: Place) -> None:
    answer = await scrape(place.daemon.till_socket)
    for text in (answer.text, (place.daemon.directory / "posd.prom").read_text()):
        assert_lines(text)
        assert FORGED not in text
        read(text)


async def test_a_problem_is_one_line(place: Place) -> None:
    posd = place.daemon
    known = place.ids["approved"]
    refused = [
        await posd.call("PUT", f"/transactions/{uuid4()}", {"terminal": SHORT, "amount": AMOUNT}),
        await posd.call("PUT", f"/transactions/{uuid4()}", {"terminal": "SN-00", "amount": AMOUNT, "sale": SHORT}),
        await posd.call("PUT", f"/transactions/{uuid4()}", {"terminal": "SN-00", "amount": {SHORT: SHORT}, SHORT: 1}),
        await posd.call("PUT", f"/transactions/{uuid4()}", {"terminal": "SN-00", "amount": AMOUNT, "type": SHORT}),
        await posd.call("GET", f"/transactions?terminal={quote(SHORT)}&phase={quote(SHORT)}&{quote(SHORT)}=1"),
        await posd.call("GET", f"/terminals/{quote(SHORT)}"),
        await posd.call("GET", f"/{quote(SHORT)}"),
        await posd.call("PUT", f"/print-jobs/{quote(SHORT, safe='')}", {"document": {}}),
        await posd.call("POST", f"/transactions/{known}/acknowledge", ACKNOWLEDGED, socket=posd.admin_socket),
        await posd.call("POST", "/backup", {"path": f"/nowhere/{SHORT}"}, socket=posd.admin_socket),
    ]
    for reply in refused:
        assert reply.status >= 400, reply.body
        document = reply.json
        assert_lines(document["detail"])
        assert_lines(document["title"])


async def test_an_attention_is_one_line(place: Place) -> None:
    posd = place.daemon
    found = [
        attention
        for kind in ("transactions", "print-jobs")
        for item in (await posd.call("GET", f"/{kind}?attention=true")).json[kind.replace("-", "_")]
        for attention in item["attention"]
    ]
    assert "FORGED" in json.dumps(found)
    for attention in found:
        assert_lines(attention["detail"])


@pytest.mark.slow
async def test_a_name_from_a_file_or_a_configuration_is_shown_as_text(place: Place) -> None:
    home = place.daemon.directory
    for name in (f"x\n{FORGED}", "x\x1b[2J", "\u202ex", "x\udcff"):
        file = home / name
        file.write_text(f'[webhooks]\n"{FORGED}\u2028{FORGED}" = 1\nlisten = "\\u001b[2J\\n{FORGED}"\n')
        for given in (
            ("config", "check"),
            ("doctor",),
            ("list",),
            ("report",),
            ("terminals", "--all"),
            ("tls", "status"),
        ):
            done = await asyncio.to_thread(posd, *given, config=file)
            assert done.returncode != 0, done.stdout
            assert_lines(done.stdout, tabs=True)
            assert_lines(done.stderr)
        for given in (
            ("verify", str(file)),
            ("restore", str(file), "--yes"),
            ("restore", "--ids", str(file), "--yes"),
            ("restore", "--ids", f"{file}-not-there", "--yes"),
            ("print", str(file)),
            ("logs", str(file)),
        ):
            done = await run_here(place, *given)
            assert_lines(done.stdout, tabs=True)
            assert_lines(done.stderr)
