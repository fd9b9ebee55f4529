"""Record of posd's output: calls of the local API and commands, on a day with many kinds of events.

The day has one daemon and one scripted terminal. Ids, times, places and durations are replaced by numbers in the order
in which they appear, so that two records of the same behaviour are equal byte for byte:

    python -m tests.house surface FILE
"""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from posd.cli.main import main
from tests.support import shop
from tests.support.daemon import Daemon, running
from tests.support.events import APPROVED, body
from tests.support.https import deliver
from tests.support.streams import Reply
from tests.support.terminal import ScriptedTerminal, http, nowhere, scripted_terminal, taking_abort

AMOUNT = {"iva": 1.20, "subtotal_iva": 10.00}
RECEIPT = {"lines": ["ACME", {"text": "TOTAL 11.20", "bold": True}], "copies": 1}
SIGNED = {"operator": "Ana", "note": "seen at the terminal"}

#: Each command with its arguments. `ID` is replaced by the id of a payment, and `JOB` by the id of a print job.
COMMANDS = """
show APPROVED | show APPROVED --json | show APPROVED --history | show APPROVED --events | show DOUBT | show RESOLVED
show VOID | show CAPTURE | show 00000000-0000-4000-8000-00000000ffff | show nonsense
list | list --json | list --open | list --attention | list --all --json | list --phase final | list --sale sale-1
list --metadata lane=4 | list --limit 1 | list --since 2020-01-01 | list --phase nonsense | list --terminal SN-TEST
await APPROVED | await APPROVED --json | await DOUBT --timeout 0 | await RESOLVED
abort APPROVED | reconcile DOUBT | reconcile APPROVED
resolve APPROVED approved --operator Ana --note x --yes | resolve DOUBT nonsense --operator Ana --note x
acknowledge APPROVED gap --operator Ana --note x --yes | release APPROVED --operator Ana --note x --yes
charge 0 | charge 11.2x | charge | void nonsense --yes | tip DECLINED 2.00 --yes | capture CHARGELESS 1.00 --yes
print-jobs | print-jobs --json | print-jobs JOB | print-jobs JOB --json | print-jobs none | print-jobs --attention
print /nonexistent | resolve JOB FAILED --operator Ana --note x --yes
quarantine | quarantine --json | quarantine 1 | quarantine 1 --json | quarantine 99
reprocess | reprocess --json | terminals | terminals --json | terminals --all | status | status --json
report --date 2020-01-01 | report --date 2020-01-01 --json | report --date 2020-01-01 --csv | report --json
report --csv | report | report --date nonsense
config check | config check --json | config show | config show --profile | config show --json
tls status | tls status --json | tls ca --fingerprint | tls renew --if-needed
verify | verify --json | prune --dry-run | prune --dry-run --json | restore --seen --operator Ana --note x
openapi | completion bash | completion zsh | completion fish | nonsense | --version | show | simulate --list
simulate --show decline | logs /nonexistent | logs LOG | logs LOG -p warning | logs LOG --json | watch
doctor --json
""".replace("\n", "|").split("|")

#: Pattern of text that differs between runs -> its placeholder. Values of the first groups are numbered.
NUMBERED = (
    ("ID", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)),
    ("TOKEN", re.compile(r"\b[0-9a-f]{16,}\b", re.IGNORECASE)),
    ("PRINT", re.compile(r"\b(?:[0-9A-F]{2}:){15,}[0-9A-F]{2}(?:\s+(?:[0-9A-F]{2}:){15}[0-9A-F]{2})?\b")),
    ("CA", re.compile(r"(?<=posd CA )\S+ [0-9a-f]{8}\b")),
    ("TEXT", re.compile(r"\b[A-Za-z0-9_-]{43}\b")),
)
BLURRED = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d| UTC)?"), "MOMENT"),
    (re.compile(r"\b(?<!20)\d{4}-\d\d-\d\d\b"), "DAY"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?(\.\d+)?\b"), "CLOCK"),
    (re.compile(r"\b\d+(\.\d+)? (s|ms|min|h|d|days?|bytes|kB|MB|GB)\b"), "N UNIT"),
    (re.compile(r"\b0\.\d{3}\b"), "SECONDS"),
    (re.compile(r"\"by_hour\":\[.*?\]"), '"by_hour":[]'),
    (re.compile(r"\bprocess \d+"), "process N"),
    (re.compile(r"\b[\d ]+ MiB\b"), "N MiB"),
    (re.compile(r"\bport\"?:? ?\d+"), "port N"),
    (re.compile(r"\bMj[A-Za-z0-9]{40,}={0,2}"), "CURSOR"),
    (re.compile(r'"place": ?"(\d+)-[0-9a-f]{8}"'), r'"place": "\1-X"'),
    (re.compile(r'("seconds": ?)[\d.]+'), r"\1N"),
    (re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):\d+"), "HOST:PORT"),
    (re.compile(r'("(?:pid|uid|size_bytes|bytes|uptime_seconds|age_seconds|\w*_seconds|\w*_bytes)": ?)[\d.]+'), r"\1N"),
)


class Record:
    """The text of a recorded day."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.parts: list[str] = []
        self.numbers: dict[str, str] = {}

    def add(self, title: str, *texts: str) -> None:
        """Add a request and its reply."""
        self.parts.append("\n".join((f"=== {title}", *texts)))

    def reply(self, title: str, reply: Reply) -> None:
        """Add a reply of the local API: its status, the promised headers, and its body in lines."""
        kept = ("content-type", "location", "retry-after", "allow", "etag")
        headers = [f"{name}: {reply.headers[name]}" for name in kept if name in reply.headers]
        text = reply.body.decode("utf-8", "replace")
        if "json" in reply.headers.get("content-type", ""):
            text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
        self.add(title, str(reply.status), *headers, text)

    @property
    def text(self) -> str:
        """Return all records, without the parts that differ between runs."""
        text = "\n\n".join(self.parts).replace(str(self.home), "HOME") + "\n"
        for kind, pattern in NUMBERED:
            text = pattern.sub(lambda match, kind=kind: self._number(kind, match[0]), text)
        for pattern, word in BLURRED:
            text = pattern.sub(word, text)
        return text

    def _number(self, kind: str, value: str) -> str:
        return self.numbers.setdefault(f"{kind}:{value.lower()}", f"{kind}-{len(self.numbers) + 1}")


def identity(number: int) -> str:
    """Return an id of the day, the same in every run."""
    return str(UUID(int=(4 << 76) | (8 << 60) | number))


APPROVED_ID, DECLINED, DOUBT, RESOLVED, VOID, PREAUTH, CAPTURE, REFUSED, ABORTED, ODD = map(identity, range(1, 11))
NAMES = {
    "APPROVED": APPROVED_ID,
    "DECLINED": DECLINED,
    "DOUBT": DOUBT,
    "RESOLVED": RESOLVED,
    "VOID": VOID,
    "CAPTURE": CAPTURE,
    "CHARGELESS": ODD,
    "JOB": "job-1",
}


def record(file: Path) -> None:
    """Record a day and write it to a file."""
    file.write_text(asyncio.run(_record()))


async def _record() -> str:
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        kept = Record(home)
        extra = shop.QUIET + "[print]\npoll_first_seconds = 3600\npoll_max_seconds = 3600\nstuck_seconds = 3600\n"
        async with scripted_terminal(home) as terminal, running(home, terminal.toml, extra) as daemon:
            await _day(kept, daemon, terminal)
            await _reads(kept, daemon)
            await _refusals(kept, daemon)
            terminal.start = nowhere  # `posd doctor` also calls this address, and this call does not start a payment
            log = home / "log"
            log.write_text("".join(json.dumps(line) + "\n" for line in _sorted(daemon.lines)))
            for line in COMMANDS:
                await _command(kept, daemon, line.split(), log)
        for name in _all_commands():
            await _command(kept, daemon, [*name.split(), "--help"], log)
        await _command(kept, daemon, ["status"], log)
        kept.add("the log", *(json.dumps(line, sort_keys=True) for line in _sorted(daemon.lines)))
        return kept.text


def _sorted(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines of the log in an order that does not depend on concurrency."""
    return sorted(lines, key=lambda line: json.dumps({"event": line["event"]} | line | {"timestamp": ""}))


async def _start(kept: Record, daemon: Daemon, name: str, **request: Any) -> None:
    title = f"PUT {name} {request}"
    kept.reply(title, await daemon.call("PUT", f"/transactions/{name}", request))


async def _day(kept: Record, daemon: Daemon, terminal: ScriptedTerminal) -> None:
    """Make one payment or print job of each kind: approved, declined, captured, voided, refused, aborted, in doubt,
    printed, set aside.
    """

    async def events(name: str, *states: tuple[str, str | None], **changes: Any) -> None:
        callback = next(item.callback for item in terminal.requests if name.encode() in item.body)
        for status, previous in states:
            content = body(name, status, previous, **changes)
            kept.add(f"webhook {status} of {name}", str(await deliver(callback, content, daemon.ca)))

    await _start(kept, daemon, APPROVED_ID, amount=AMOUNT, metadata={"lane": 4}, sale="sale-1")
    await events(APPROVED_ID, *APPROVED)
    await events(APPROVED_ID, APPROVED[-1])
    await _start(kept, daemon, DECLINED, amount=AMOUNT)
    await events(DECLINED, *APPROVED[:-1], ("DECLINED", "APPROVAL_REQUESTED"))
    await _start(kept, daemon, PREAUTH, type="pre-auth", amount=AMOUNT)
    await events(PREAUTH, *APPROVED)
    await _start(kept, daemon, CAPTURE, type="capture", amount=AMOUNT, original=PREAUTH)
    await events(CAPTURE, *APPROVED)
    await _start(kept, daemon, VOID, type="void", original=APPROVED_ID)
    await events(VOID, *APPROVED)

    async def refusing(_request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(http(400, b'{"message": "no"}'))

    terminal.start = refusing
    await _start(kept, daemon, REFUSED, amount=AMOUNT)
    terminal.start = None
    await _start(kept, daemon, ABORTED, amount=AMOUNT)
    terminal.abort = taking_abort
    kept.reply("abort", await daemon.call("POST", f"/transactions/{ABORTED}/abort"))
    await events(ABORTED, APPROVED[0], ("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED"))

    async def hanging_up(_request: Any, _writer: asyncio.StreamWriter) -> None:
        return

    terminal.start = hanging_up
    for name in (RESOLVED, DOUBT):
        await _start(kept, daemon, name, amount=AMOUNT)
        kept.reply("reconcile", await daemon.call("POST", f"/transactions/{name}/reconcile"))
        kept.reply("release", await daemon.call("POST", f"/transactions/{name}/release", SIGNED))
    terminal.start = None
    admin = daemon.admin_socket
    resolved = SIGNED | {"result": "approved"}
    kept.reply("resolve", await daemon.call("POST", f"/transactions/{RESOLVED}/resolve", resolved, socket=admin))
    seen = SIGNED | {"code": "released"}
    kept.reply("seen", await daemon.call("POST", f"/transactions/{RESOLVED}/acknowledge", seen, socket=admin))

    job = {"document": RECEIPT}
    kept.reply("PUT job-1", await daemon.call("PUT", "/print-jobs/job-1", job))
    callback = terminal.prints[-1].print_callback
    told = json.dumps({"printJobId": "job-1", "status": "COMPLETED"}).encode()
    kept.add("print webhook", str(await deliver(callback, told, daemon.ca)))
    terminal.print_start = nowhere
    kept.reply("PUT job-2", await daemon.call("PUT", "/print-jobs/job-2", job))
    # Authentic callbacks that posd cannot use.
    callback = next(item.callback for item in terminal.requests if APPROVED_ID.encode() in item.body)
    kept.add("webhook that is no event", str(await deliver(callback, b'{"status": 5}', daemon.ca)))


async def _reads(kept: Record, daemon: Daemon) -> None:
    """Make every call that reads, for every existing record."""
    for name in (APPROVED_ID, DECLINED, PREAUTH, CAPTURE, VOID, REFUSED, ABORTED, RESOLVED, DOUBT, ODD, "nonsense"):
        for path in ("", "/outcome?timeout=0", "/events", "/history"):
            kept.reply(f"GET {name}{path}", await daemon.call("GET", f"/transactions/{name}{path}"))
    for name in ("job-1", "job-2", "job-3"):
        for path in ("", "/outcome?timeout=0", "/history"):
            kept.reply(f"GET {name}{path}", await daemon.call("GET", f"/print-jobs/{name}{path}"))
    for path in (
        *("/transactions", "/transactions?open=true", "/transactions?limit=2", "/transactions?metadata.lane=4"),
        *("/transactions?sale=sale-1", "/transactions?attention=in_doubt", "/transactions?phase=nonsense"),
        *("/print-jobs", "/print-jobs?open=true", "/terminals", "/terminals?all=true", "/terminals/SN-TEST"),
        *("/terminals/none", "/feed?after=0", "/feed?after=3&limit=2", "/feed?after=-1", "/version", "/openapi.json"),
        *("/health", "/nothing"),
    ):
        kept.reply(f"GET {path}", await daemon.call("GET", path))
    for path in ("/quarantine", "/quarantine/1", "/quarantine/99", "/prune"):
        kept.reply(f"GET {path} (admin)", await daemon.call("GET", path, socket=daemon.admin_socket))
        kept.reply(f"GET {path} (till)", await daemon.call("GET", path))


async def _refusals(kept: Record, daemon: Daemon) -> None:
    """Make calls that are refused because of their content."""
    path = f"/transactions/{ODD}"
    for content in (
        *(b"", b"{", b"[]", {}, {"amount": {}}, {"amount": {"iva": "1.2"}}, {"amount": AMOUNT, "terminal": "none"}),
        *(
            {"type": "loan", "amount": AMOUNT},
            {"type": "void"},
            {"type": "capture", "amount": AMOUNT, "original": ODD},
        ),
        *({"amount": AMOUNT, "surprise": 1}, {"type": "void", "original": VOID}, {"amount": AMOUNT, "metadata": 5}),
    ):
        kept.reply(f"PUT {content!r}", await daemon.call("PUT", path, content))
    kept.reply("another amount", await daemon.call("PUT", f"/transactions/{APPROVED_ID}", {"amount": {"iva": 1}}))
    sale = {"amount": AMOUNT, "sale": "sale-1"}
    kept.reply("the same sale", await daemon.call("PUT", path, sale))
    for content in ({}, {"document": {}}, {"document": RECEIPT, "terminal": "none"}, b"{"):
        kept.reply(f"print {content!r}", await daemon.call("PUT", "/print-jobs/job-9", content))
    admin = daemon.admin_socket
    for call in ("abort", "reconcile", "release", "resolve", "acknowledge"):
        for content in (None, {}, SIGNED):
            for name in (APPROVED_ID, ODD):
                reply = await daemon.call("POST", f"/transactions/{name}/{call}", content, socket=admin)
                kept.reply(f"POST {name} {call} {content}", reply)
    for path in ("/reprocess", "/prune", "/backup", "/restore/seen", "/print-jobs/job-1/resolve"):
        for content in (None, {}, {"surprise": 1}):
            kept.reply(f"POST {path} {content}", await daemon.call("POST", path, content, socket=admin))
    kept.reply("DELETE", await daemon.call("DELETE", "/transactions"))
    kept.reply("text", await daemon.call("PUT", f"/transactions/{ODD}", b"x", headers={"content-type": "text/plain"}))


async def _command(kept: Record, daemon: Daemon, words: list[str], log: Path) -> None:
    if not words:
        return
    arguments = [NAMES.get(word, str(log) if word == "LOG" else word) for word in words]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "posd", "--config", str(daemon.config_file), *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"COLUMNS": "100", "TZ": "UTC", "LANG": "C.UTF-8"},
    )
    out, error = await process.communicate()
    kept.add(f"posd {' '.join(words)}", f"exit {process.returncode}", out.decode(), error.decode())


def _all_commands(command: Any = main, name: str = "") -> list[str]:
    import click

    if not isinstance(command, click.Group):
        return [name]
    context = click.Context(command)
    inner = [(word, command.get_command(context, word)) for word in command.list_commands(context)]
    return [name, *(found for word, item in inner for found in _all_commands(item, f"{name} {word}".strip()))]
