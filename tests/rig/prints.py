"""Print jobs on a scripted terminal, with one daemon for a test file. The jobs do not affect each other."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from posd.base.ids import Channel
from tests.rig.daemon import Daemon
from tests.rig.streams import Reply
from tests.rig.terminal import PATIENCE_SECONDS, Request, Script, ScriptedTerminal, http, nowhere
from tests.rig.webhooks import address, deliver, printed

RECEIPT = {"lines": ["ACME", {"text": "TOTAL 11.20", "bold": True}], "copies": 1}

#: With this configuration posd polls no job during a test.
SILENT = "[print]\npoll_first_seconds = 3600\npoll_max_seconds = 3600\nstuck_seconds = 3600\n"
#: With this configuration posd polls every open job at once.
EAGER = "[print]\npoll_first_seconds = 0.1\npoll_max_seconds = 0.5\nstuck_seconds = 3600\n"


@dataclass
class Job:
    """One print job of a test."""

    daemon: Daemon
    terminal: ScriptedTerminal
    identity: str

    async def put(self, **changes: Any) -> Reply:
        """Print the job or repeat the call. Keyword arguments replace fields of the request."""
        return await self.daemon.call("PUT", f"/print-jobs/{self.identity}", {"document": RECEIPT} | changes)

    async def started(self, **changes: Any) -> "Job":
        """Print the job. Check that the terminal accepts the job."""
        reply = await self.put(**changes)
        assert (reply.status, reply.json["phase"]) == (201, "active"), reply.body
        return self

    @property
    def requests(self) -> list[Request]:
        """Requests that create the job, as received by the terminal."""
        return [item for item in self.terminal.prints if item.json["printJobId"] == self.identity]

    @property
    def polls(self) -> list[Request]:
        """Polls for the job, as received by the terminal."""
        return [item for item in self.terminal.polls if item.path.endswith(f"={self.identity}")]

    async def polled(self, count: int = 1) -> None:
        """Wait until the terminal has received this many polls for the job."""
        await self.terminal.until(lambda: len(self.polls) >= count)

    @property
    def address(self) -> str:
        """Path of the job's callback URL, computed with the daemon's key."""
        return address(self.daemon, self.identity, Channel.PRINT)

    def words(self, status: str = "COMPLETED", **changes: Any) -> bytes:
        """Return a webhook of the job (terminal API, Printing)."""
        document = {"printJobId": self.identity, "status": status, "externalReference": ""} | changes
        return json.dumps(document).encode()

    async def call(self, content: bytes, **options: Any) -> Reply:
        """Deliver these bytes to the job's callback URL."""
        return await deliver(self.daemon, self.address, content, **options)

    async def webhook(self, status: str = "COMPLETED", **changes: Any) -> int:
        """Deliver a webhook of the job. Return the HTTP status."""
        return (await self.call(self.words(status, **changes))).status

    async def get(self) -> Any:
        """Return the job from the local API."""
        reply = await self.daemon.call("GET", f"/print-jobs/{self.identity}")
        assert reply.status == 200, reply.body
        return reply.json

    async def outcome(self) -> Any:
        """Wait for the end of the job."""
        reply = await self.daemon.call("GET", f"/print-jobs/{self.identity}/outcome?timeout={PATIENCE_SECONDS}")
        assert reply.status == 200, reply.body
        return reply.json

    async def until(self, what: Callable[[Any], bool]) -> Any:
        """Follow the feed until the job meets a condition. Return the job as it was when the condition was met."""
        return await self.daemon.wait_for(self.identity, what, PATIENCE_SECONDS, "print-jobs")

    async def history(self) -> list[dict[str, Any]]:
        reply = await self.daemon.call("GET", f"/print-jobs/{self.identity}/history")
        return list(reply.json["history"])

    async def resolve(self, result: str = "COMPLETED", **changes: Any) -> Reply:
        """Record the job's end as an operator."""
        body = {"result": result, "operator": "Ana", "note": "the paper came out"} | changes
        path = f"/print-jobs/{self.identity}/resolve"
        return await self.daemon.call("POST", path, body, socket=self.daemon.admin_socket)

    async def changes(self) -> list[dict[str, Any]]:
        """Return the job's lines of the feed."""
        return [item for item in await self.daemon.feed() if (item["kind"], item["id"]) == ("print_job", self.identity)]

    @property
    def kept(self) -> list[bytes]:
        """Stored bodies of the job's webhooks."""
        return printed(self.daemon, self.identity)


@dataclass
class Printer:
    """A daemon and a scripted terminal that prints."""

    daemon: Daemon
    terminal: ScriptedTerminal

    def job(self, start: Script | None = None) -> Job:
        """Return a new job. The terminal follows this script for the job's creation, and knows no job in a poll."""
        self.terminal.print_start, self.terminal.print_poll = start, None
        self.terminal.instead = None
        return Job(self.daemon, self.terminal, f"job-{uuid4()}")

    async def nothing_to_correct(self) -> None:
        """Check that reprocessing changes no job of this daemon."""
        report = (await self.daemon.call("POST", "/reprocess", socket=self.daemon.admin_socket)).json["printing"]
        assert (report["differing"], report["differences"]) == (0, []), report
        assert report["print_jobs"] > 0


def knowing(job: Job, *, otherwise: Script = nowhere, **answer: Any) -> Script:
    """Return the script of a poll. The poll finds only this job, with these members."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.path.endswith(f"={job.identity}"):
            writer.write(http(200, json.dumps({"printJobId": job.identity} | answer).encode()))
        else:
            await otherwise(request, writer)

    return script


def one_by_one(*scripts: Script) -> Script:
    """Return a script that uses one of these scripts for each request, in order. The last script is used for all
    further requests."""
    left = list(scripts)

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(request, writer)

    return script


@dataclass
class Counting:
    """Script that counts simultaneous requests. The script calls the daemon before the reply, so that posd can send
    other requests. `most`: the largest number of simultaneous requests.
    """

    daemon: Daemon
    then: Script
    now: int = 0
    most: int = 0

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.daemon.call("GET", "/version")
        self.now -= 1
        await self.then(request, writer)
