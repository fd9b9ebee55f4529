"""Check of a response to a request of schemathesis, with its default checks. This module lists all exceptions."""

import json
import re
import socket
from pathlib import Path
from typing import Any

from requests import Session
from requests.adapters import HTTPAdapter
from schemathesis.core.failures import Failure, FailureGroup
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from tests.openapi.simulated import STUCK_SECONDS
from tests.rig.daemon import Daemon

#: Codes with which posd can refuse a valid request. They depend on the configuration and on the stored data.
OF_RECORDS = {"unknown_terminal", "unknown_original", "pruned", "amount_exceeds"}
#: Rules that a schema cannot express in a readable form. Text of an `invalid_request` -> reason.
REFUSALS = {
    "cursor is not a cursor": "only what a list gave out is one",
    "is allowed only with the result approved": "depends on the result",
    "id goes with `limit` alone": "in place of other parameters",
    "shift replaces `since`": "in place of other parameters",
    "is not a time zone": "which there are, the system says",
    "must be from 1970 to": "the years of a report",
    "since and `until` are required": "these or another parameter",
    "/path is required if neither": "one of three fields",
    "which is missing": "goes with another field",
    "nothing was done: /(path|into) ": "what the disk has there",
    "must add up to more than 0": "the sum of several fields",
    "/amount is required": "depends on the type",
    "digits (before|after) the point": "decimals, not floats",
    "belongs to .*, not to": "depends on the type",
    "is given with `original`": "one of two fields",
    "/original is missing": "depends on the type",
    "one of the claimed addresses": "which there are, the LAN says",
    "must be an ISO 8601 time": "leap seconds, which Python has not",
    "must be a moment with its offset": "the same",
    "not a known member": "the configuration admits more",
}
#: Calls that read Last-Event-ID only if a stream is asked for.
STREAMS = {"list_events", "read_feed"}


class OnSocket(HTTPAdapter):
    """Adapter for `requests`. schemathesis uses this library. The adapter calls the Unix socket for any host."""

    def __init__(self, path: Path) -> None:
        super().__init__()

        class Connection(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                made = socket.socket(socket.AF_UNIX)
                made.settimeout(STUCK_SECONDS)
                made.connect(str(path))
                return made

        self._pool = HTTPConnectionPool("posd")
        self._pool.ConnectionCls = Connection

    def close(self) -> None:
        self._pool.close()

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        return self._pool


def session(daemon: Daemon) -> Session:
    """Return a session for the sockets of a daemon. The session calls them as `http://admin` and `http://till`."""
    made = Session()
    made.mount("http://admin", OnSocket(daemon.admin_socket))
    made.mount("http://till", OnSocket(daemon.till_socket))
    return made


def faults(case: Any, session: Session, home: Path) -> str:
    """Make a request. Return the faults as text or ""."""
    admin = case.operation.definition.raw["x-posd-socket"] == ["admin"]
    _inside(case, home)
    response = case.call(base_url="http://admin" if admin else "http://till", session=session, timeout=STUCK_SECONDS)
    try:
        case.validate_response(response)
    except FailureGroup as group:
        found = [failure for failure in group.exceptions if not _listed(failure, case, response)]
        if found:
            told = [f"{type(item).__name__}: {item}" for item in found]
            return "\n".join([*told, case.as_curl_command(), f"{response.status_code} {response.text[:2000]}"])
    return ""


def _inside(case: Any, home: Path) -> None:
    """Prevent backups outside this directory."""
    if isinstance(case.body, dict):
        for name in ("path", "into"):
            if isinstance(case.body.get(name), str) and case.body[name].startswith("/"):
                case.body[name] = f"{home}/backups{case.body[name].replace('/..', '')}"


def _listed(failure: Failure, case: Any, response: Any) -> bool:
    """Return whether a failure is a listed exception."""
    kind, words, status = type(failure).__name__, str(failure), response.status_code
    if kind == "JsonSchemaError":  # this response says itself that it differs from the description
        return bool(case.query.get("amounts") == "text")
    if kind == "AcceptedNegativeData":
        # posd replies to a known id before it checks the request, and ignores an unknown header
        last = case.operation.definition.raw["operationId"] in STREAMS and "Last-Event-ID" in words
        return bool(status == 410 or last or "in header - object with unexpected properties" in words)
    if kind != "RejectedPositiveData" or status not in (410, 422):
        return False
    problem = json.loads(response.content)
    composed = problem["code"] == "invalid_request" and any(re.search(text, problem["detail"]) for text in REFUSALS)
    return composed or problem["code"] in OF_RECORDS
