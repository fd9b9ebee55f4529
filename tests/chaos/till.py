"""A till: a process that makes its payments one after the other, and can be killed at any instant.

It stores an id in its own ledger (synced) before it calls, repeats the call until it is answered, and waits for the
outcome. Started again it reads its ledger and asks again by the same ids. Each line that it writes down it prints, too;
it begins with `at`, the moment.

| kind      | a line of the ledger says                                                              |
| --------- | -------------------------------------------------------------------------------------- |
| `intent`  | a payment is about to be asked for: id                                                 |
| `again`   | a till that was started again takes up an id                                           |
| `answer`  | a start was answered by a transaction: id, status, phase                               |
| `problem` | a start was refused, and nothing of it is recorded: id, status, code                   |
| `abort`   | an abort was answered: id, status, code                                                |
| `outcome` | how it ended: id, result, reference, ticket, amount, corrected                         |
| `refused` | the till has given it up, for nothing of it is recorded at posd: id, code              |
"""

import argparse
import asyncio
import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.streams import call, stream

#: Seconds until it calls an unreachable daemon again.
AGAIN_SECONDS = 0.05
#: Seconds that one call waits for an outcome.
LOOK_SECONDS = 1.0
#: Seconds until the next payment after one that did not start, doubled each time.
PERSON_SECONDS = 0.2
MAX_PERSON_SECONDS = 3.0
#: Most seconds that it waits for the card before an abort.
CARD_SECONDS = 2.0
#: After so many calls with `sale_conflict` and an open payment, a till gives up its own payment.
CONFLICTS = 5

#: Lines after which a payment is finished.
CLOSED = ("outcome", "refused")


class Ledger:
    """The till's memory: JSON lines, each synced before the next step."""

    def __init__(self, path: Path) -> None:
        self.lines: list[dict[str, Any]] = []
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(os.dup(self._file), "rb") as file:
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]  # a kill may have cut the last line short
        os.ftruncate(self._file, len(whole))
        os.lseek(self._file, 0, os.SEEK_END)
        self.lines = [json.loads(line) for line in whole.splitlines()]

    def write(self, kind: str, **fields: Any) -> None:
        """Write a line, sync it, and print it."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "kind": kind, **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fsync(self._file)
        self.lines.append(line)
        say(line)

    def closed(self) -> set[str]:
        """Return the finished ids."""
        return {line["id"] for line in self.lines if line["kind"] in CLOSED}

    def begun(self) -> set[str]:
        """Return the ids of started payments."""
        return {line["id"] for line in self.lines if line["kind"] == "intent"}


def say(line: dict[str, Any]) -> None:
    """Print a line of JSON at once. A closed pipe is not an error."""
    with suppress(OSError):
        os.write(1, json.dumps(line).encode() + b"\n")


class Till:
    """One till on one socket."""

    def __init__(self, socket: Path, ledger: Ledger) -> None:
        self._socket = socket
        self._ledger = ledger
        self._patience = PERSON_SECONDS

    async def run(self, items: list[dict[str, Any]]) -> None:
        """Make all unfinished payments."""
        closed = self._ledger.closed()
        for item in items:
            if item["id"] not in closed:
                await self._pay(item)

    async def _pay(self, item: dict[str, Any]) -> None:
        identity = item["id"]
        if identity in self._ledger.begun():
            self._ledger.write("again", id=identity)
        else:
            if item["meet"] is not None:
                await self._meet(item["meet"])
            self._ledger.write("intent", id=identity)
        if await self._start(item):
            if item["abort"] is not None:
                await self._abort(item)
            await self._await_outcome(identity)

    async def _meet(self, number: int) -> None:
        """Wait until the other till is ready too."""
        say({"kind": "meet", "meet": number})
        loop = asyncio.get_running_loop()
        while json.loads(await loop.run_in_executor(None, sys.stdin.readline)) != {"go": number}:
            pass

    async def _start(self, item: dict[str, Any]) -> bool:
        """Start it. Return True if posd has it, False if it was given up."""
        identity = item["id"]
        conflicts = 0
        while True:
            calls = [self._call("PUT", f"/transactions/{identity}", item["request"]) for _ in range(1 + item["twice"])]
            answers = await asyncio.gather(*calls)
            for status, document in answers:
                if status in (200, 201):
                    self._ledger.write("answer", id=identity, status=status, phase=document["phase"])
                else:
                    self._ledger.write("problem", id=identity, status=status, code=document["code"])
            if any(status in (200, 201) for status, _ in answers):
                return True
            problem = answers[-1][1]
            match problem["code"]:
                case "terminal_busy":
                    await self._look(problem["blocking_transaction"])
                case "sale_conflict":
                    conflicts += 1
                    others = [await self._look(other) for other in problem["transactions"]]
                    paid = any(other is not None and other["result"] == "approved" for other in others)
                    if paid or conflicts == CONFLICTS:
                        self._ledger.write("refused", id=identity, code="sale_conflict")
                        return False
                case "draining" | "storage_unavailable" | "internal_error":
                    await asyncio.sleep(AGAIN_SECONDS)
                case code:
                    self._ledger.write("refused", id=identity, code=code)
                    return False

    async def _look(self, identity: str) -> Any:
        """Wait a while for the outcome of another payment. Return None if there is none yet."""
        status, document = await self._call("GET", f"/transactions/{identity}/outcome?timeout={LOOK_SECONDS}")
        return document if status == 200 else None

    async def _abort(self, item: dict[str, Any]) -> None:
        identity = item["id"]
        if item["abort"] == "card":
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError, AssertionError, ValueError):
                async with (
                    asyncio.timeout(CARD_SECONDS),
                    stream(self._socket, f"/transactions/{identity}/events") as messages,
                ):
                    async for message in messages:
                        if message.event not in ("state", "TERMINAL_ACKNOWLEDGED"):
                            break
        status, document = await self._call("POST", f"/transactions/{identity}/abort")
        self._ledger.write("abort", id=identity, status=status, code=document.get("code"))

    async def _await_outcome(self, identity: str) -> None:
        """Wait for the outcome."""
        while True:
            status, document = await self._call("GET", f"/transactions/{identity}/outcome?timeout={LOOK_SECONDS}")
            if status == 200:
                self._ledger.write(
                    "outcome",
                    id=identity,
                    result=document["result"],
                    reference=document["transaction_reference"],
                    ticket=document["ticket_number"],
                    amount=document["authorized_amount"],
                    corrected=document["supersedes"] and document["supersedes"]["result"],
                )
                if document["result"] == "not_started":
                    await asyncio.sleep(self._patience)
                    self._patience = min(MAX_PERSON_SECONDS, 2 * self._patience)
                else:
                    self._patience = PERSON_SECONDS
                return
            if status not in (202, 503):
                raise AssertionError(f"the outcome of {identity} was answered {status}: {document}")

    async def _call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call until there is a response. A stopped daemon comes back."""
        while True:
            try:
                reply = await call(self._socket, method, path, body)
                return reply.status, json.loads(reply.body)
            except OSError:
                await asyncio.sleep(AGAIN_SECONDS)


def main() -> None:
    """Run a till on a plan, from the position in its ledger."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    options = parser.parse_args()
    till = Till(options.socket, Ledger(options.ledger))
    asyncio.run(till.run(json.loads(options.plan.read_text())))


if __name__ == "__main__":
    main()
