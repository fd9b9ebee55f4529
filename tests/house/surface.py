"""Record of posd's output: each command with its help, the description of the API and the log, on a day with many kinds
of events.

The day has one daemon and one scripted terminal with many serials. Ids, times, places and durations are replaced by
numbers in the order in which they appear, so that two records of the same behaviour are equal byte for byte:

    python -m tests.house surface FILE
"""

import asyncio
import json
import os
import re
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from uuid import UUID

from posd.cli.main import main
from tests.support import chains, events, forks, outcomes
from tests.support import shop as shops
from tests.support.chains import approved
from tests.support.daemon import Daemon
from tests.support.outcomes import every_outcome
from tests.support.prints import RECEIPT, SILENT
from tests.support.shop import Shop, open_shop, quiet
from tests.support.terminal import nowhere

SIGNED = {"operator": "Ana", "note": "seen at the terminal"}
#: Ids of the day, the same in every run. No payment has the id ODD.
IDS = (UUID(int=(4 << 76) | (8 << 60) | number) for number in count(1))
ODD = str(next(IDS))
#: Number of terminals of the day.
TERMINALS = 20

#: Each command with its arguments. `ID` is replaced by the id of a payment, and `JOB` by the id of a print job.
COMMANDS = """
show APPROVED | show APPROVED --json | show APPROVED --history | show APPROVED --events | show DOUBT | show RESOLVED
show VOID | show CAPTURE | show 00000000-0000-4000-8000-00000000ffff | show nonsense
list | list --json | list --open | list --attention | list --all --json | list --phase final | list --sale sale-1
list --metadata lane=4 | list --limit 1 | list --since 2020-01-01 | list --phase nonsense | list --terminal SN-001
await APPROVED | await APPROVED --json | await DOUBT --timeout 0 | await RESOLVED
abort APPROVED | reconcile DOUBT | reconcile APPROVED
resolve APPROVED approved --operator Ana --note x --yes | resolve DOUBT nonsense --operator Ana --note x
acknowledge APPROVED gap --operator Ana --note x --yes | release APPROVED --operator Ana --note x --yes
charge 0 | charge 11.2x | charge | void nonsense --yes | tip DECLINED 2.00 --yes | capture ODD 1.00 --yes
list --print-jobs | list --print-jobs --json | show JOB | show JOB --json | show none | list --print-jobs --attention
print /nonexistent | resolve JOB FAILED --operator Ana --note x --yes
quarantine | quarantine --json | quarantine 1 | quarantine 1 --json | quarantine 99
quarantine --apply | quarantine --apply --json | terminals | terminals --json | terminals --all | status | status --json
report --date 2020-01-01 | report --date 2020-01-01 --json | report --date 2020-01-01 --csv | report --json
report --csv | report | report --date nonsense
config check | config check --json | config show | config show --profile | config show --json
tls status | tls status --json | tls ca --fingerprint | tls renew --if-needed
verify | verify --json | prune --dry-run | prune --dry-run --json | restore --seen --operator Ana --note x
openapi | completion bash | completion zsh | completion fish | nonsense | --version | show | simulate --list
simulate --show decline | logs /nonexistent | logs LOG | logs LOG -p warning | logs LOG --json | watch
doctor --json
""".replace("\n", "|").split("|")

#: Text that differs between runs, and is numbered in the order in which it appears: ids, tickets, tokens, fingerprints,
#: names of the CA and of its signer, keys.
NUMBERED = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\bT-[0-9a-f]{8}\b|\b[0-9a-f]{16,}\b"
    r"|\b(?:[0-9a-f]{2}:){15,}[0-9a-f]{2}(?:\s+(?:[0-9a-f]{2}:){15}[0-9a-f]{2})?\b"
    r"|(?<=posd CA )\S+ [0-9a-f]{8}\b|(?<=posd signer )[0-9a-f]{8}\b|\b[a-z0-9_-]{43}\b",
    re.IGNORECASE,
)
#: Other text that differs: moments, days, times, durations and sizes; parts of the report of a day, and of addresses.
BLURRED = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d| UTC)?|\b(?<!20)\d{4}-\d\d-\d\d\b"
    r"|\b\d\d:\d\d(:\d\d)?(\.\d+)?\b|\b\d+(\.\d+)? (s|ms|min|h|d|days?|bytes|kB|MB|GB)\b|\b\d+\.\d{3}\b"
    r"|(?<=\"by_hour\":)\[.*?\]|(?<=\bprocess )\d+|\b[\d. ]+ [MG]iB\b|\bport\"?:? ?\d+|\bMj[A-Za-z0-9]{40,}={0,2}"
    r"|(127\.0\.0\.1|localhost|\[::1\]):\d+|(?<=\d-)[0-9a-f]{8}(?=\")"
    r"|\"(?:pid|uid|size_bytes|bytes|uptime_seconds|age_seconds|seconds|\w*_seconds|\w*_bytes)\": ?[\d.]+"
)


def stable(text: str) -> str:
    """Return a text without the parts that differ between runs."""
    numbers: dict[str, str] = {}
    text = NUMBERED.sub(lambda found: numbers.setdefault(found[0].lower(), f"ID-{len(numbers) + 1}"), text)
    return BLURRED.sub("X", text)


def record(file: Path) -> None:
    """Record a day and write it to a file."""
    with ExitStack() as stack:
        for module in (chains, events, outcomes, shops):
            stack.enter_context(patch.object(module, "uuid4", partial(next, IDS)))
        file.write_text(asyncio.run(_record()))


async def _record() -> str:
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        async with open_shop(home, SILENT, terminals=TERMINALS) as shop:
            names = await _day(shop)
            shop.terminal.start = nowhere  # `posd doctor` also calls this address, and starts no payment
            log = home / "log"
            log.write_text("".join(json.dumps(line) + "\n" for line in _sorted(shop.daemon.lines)))
            names["LOG"] = str(log)
            lines = [line.split() for line in COMMANDS if line.strip()]
            lines += [[*name.split(), "--help"] for name in _all_commands()]
            parts = [await _command(shop.daemon, names, words) for words in (*lines, ["status"])]
        parts += ["=== the log", *(json.dumps(line, sort_keys=True) for line in _sorted(shop.daemon.lines))]
        return stable("\n".join(parts).replace(directory, "HOME") + "\n")


def _sorted(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines of the log in an order that does not depend on concurrency."""
    return sorted(lines, key=lambda line: json.dumps({"event": line["event"]} | line | {"timestamp": ""}))


async def _day(shop: Shop) -> dict[str, str]:
    """Make one payment or print job of each kind: every outcome, captured, voided, in doubt, decided by an operator,
    printed, set aside. Return the ids by name.
    """
    ended = await every_outcome(shop)
    named = await approved(shop, "charge", metadata={"lane": 4}, sale="sale-1")
    capture = await approved(shop, "capture", await approved(shop, "pre-auth"))
    void = await approved(shop, "void", named)
    resolved = await shop.in_doubt()
    for payment in (resolved, ended["in_doubt"]):
        await payment.post("reconcile")
        await payment.post("release", SIGNED)
    await resolved.post("resolve", SIGNED | {"result": "approved"}, admin=True)
    await resolved.post("acknowledge", SIGNED | {"code": "released"}, admin=True)
    job = {"document": RECEIPT, "terminal": next(shop.serials)}
    await shop.daemon.call("PUT", "/print-jobs/job-1", job)
    shop.terminal.print_start = nowhere
    await shop.daemon.call("PUT", "/print-jobs/job-2", job)
    await quiet(shop.daemon)
    payments = {name.upper(): payment.identity for name, payment in ended.items()}
    others = {"CHARGE": named, "CAPTURE": capture, "VOID": void, "RESOLVED": resolved, "DOUBT": ended["in_doubt"]}
    return payments | {name: item.identity for name, item in others.items()} | {"ODD": ODD, "JOB": "job-1"}


async def _command(daemon: Daemon, names: dict[str, str], words: list[str]) -> str:
    typed = ("--config", str(daemon.config_file), *(names.get(word, word) for word in words))
    process = await forks.start(*typed, env=os.environ | {"COLUMNS": "100", "TZ": "UTC"})
    out, error = await process.communicate()
    return "\n".join((f"=== posd {' '.join(words)}", f"exit {process.returncode}", out.decode(), error.decode()))


def _all_commands(command: Any = main, name: str = "") -> list[str]:
    import click

    if not isinstance(command, click.Group):
        return [name]
    context = click.Context(command)
    inner = [(word, command.get_command(context, word)) for word in command.list_commands(context)]
    return [name, *(found for word, item in inner for found in _all_commands(item, f"{name} {word}".strip()))]
