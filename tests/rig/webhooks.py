"""Parts of tests of the webhook listener: complete responses, callback URLs, and stored rows."""

import sqlite3
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from posd.base import ids
from posd.base.ids import Channel
from tests.rig.daemon import Daemon
from tests.rig.https import post, read_head, send
from tests.rig.streams import Reply


def parse(raw: bytes) -> list[Reply]:
    """Return the responses in a connection's bytes, in order. Raise AssertionError for an incomplete response."""
    answers = []
    while raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
        first, headers = read_head(head)
        length = int(headers.get("content-length", 0))
        assert len(rest) >= length, raw
        if int(first[1]) >= 200:
            answers.append(Reply(int(first[1]), headers, rest[:length]))
        raw = rest[length:]
    return answers


async def answer_to(posd: Daemon, data: bytes) -> Reply:
    """Send the raw bytes of one request. Return the complete response."""
    (answer,) = parse(await send(posd.port, posd.ca, data))
    return answer


async def deliver(
    posd: Daemon, address: str, content: bytes = b"{}", *, method: str = "POST", headers: str = ""
) -> Reply:
    """Call a URL or a path of the listener. Return the complete response."""
    path = urlsplit(address).path if address.startswith("https://") else address
    url = f"https://127.0.0.1:{posd.port}{path}"
    return await answer_to(posd, post(url, content, method=method, headers=headers))


def chunked(content: bytes, size: int = 16_000) -> bytes:
    """Return a body in chunked transfer coding."""
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def address(posd: Daemon, identity: str, channel: Channel = Channel.TRANSACTION) -> str:
    """Return the path of the callback URL of an id, computed with the daemon's key."""
    key = bytes.fromhex(posd.key.read_text().split()[0])
    return ids.path(channel, identity, ids.token(key, channel, identity))


def disk(posd: Daemon) -> closing[sqlite3.Connection]:
    """Open the daemon's database read-only for a block."""
    return closing(sqlite3.connect(f"{posd.database.as_uri()}?mode=ro", uri=True))


def everything(posd: Daemon) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table, without the times of the last searches. posd also searches for open payments of
    other tests.
    """
    with disk(posd) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {table: db.execute(f"SELECT {_columns(db, table)} FROM {table}").fetchall() for table in tables}


def _columns(db: sqlite3.Connection, table: str) -> str:
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    return ", ".join(name for name in names if name != "last_search")


def rows_of(posd: Daemon, query: str, identity: str) -> list[Any]:
    """Return the rows of a query about an id."""
    with disk(posd) as db:
        return db.execute(query, (identity,)).fetchall()


def recorded(posd: Daemon, identity: str) -> list[tuple[str, bytes]]:
    """Return verdict and raw bytes of each recorded event of a transaction."""
    return rows_of(posd, "SELECT verdict, body FROM events WHERE client_transaction_id = ? ORDER BY seq", identity)


def printed(posd: Daemon, identity: str) -> list[bytes]:
    """Return the stored bodies of a print job's webhooks."""
    query = "SELECT body FROM print_journal WHERE print_job_id = ? AND body IS NOT NULL ORDER BY seq"
    return [row[0] for row in rows_of(posd, query, identity)]


def quarantined(posd: Daemon, identity: str) -> list[tuple[str, bytes]]:
    """Return reason and raw bytes of each refused body at a transaction's callback URL."""
    return rows_of(posd, "SELECT reason, body FROM quarantine WHERE subject = ? ORDER BY id", identity)


def attention(document: Any) -> set[str]:
    """Return the codes of the attentions of a transaction."""
    return {item["code"] for item in document["attention"]}


def faults(posd: Daemon) -> list[dict[str, Any]]:
    """Return the log lines about faults of posd or of a library."""
    return [line for line in posd.lines if line.get("level") in ("error", "critical") or "exception" in line]
