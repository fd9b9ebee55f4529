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
from tests.support.daemon import Daemon

#: Rules that a schema cannot express in a readable form. Kind of failure, status, code, text of the response -> reason.
REFUSALS: dict[tuple[str, int, str, str], str] = {
    ("RejectedPositiveData", 422, "unknown_terminal", ""): "which terminals there are, the configuration says",
    ("RejectedPositiveData", 422, "unknown_original", ""): "which payments there are, the records say",
    ("RejectedPositiveData", 410, "pruned", ""): "the same, of those that were removed",
    ("RejectedPositiveData", 422, "invalid_request", "cursor is not a cursor"): "only what a list gave out is one",
    (
        "RejectedPositiveData",
        422,
        "invalid_request",
        "is allowed only with the result approved",
    ): "depends on the result",
    ("RejectedPositiveData", 422, "invalid_request", "id goes with `limit` alone"): "in place of other parameters",
    ("RejectedPositiveData", 422, "invalid_request", "shift replaces `since`"): "in place of other parameters",
    ("RejectedPositiveData", 422, "invalid_request", "is not a time zone"): "which there are, the system says",
    ("RejectedPositiveData", 422, "invalid_request", "since and `until` are required"): "these or another parameter",
    ("RejectedPositiveData", 422, "invalid_request", "/path is required if neither"): "one of three fields",
    ("RejectedPositiveData", 422, "invalid_request", "/keep needs /into"): "goes with another field",
    ("RejectedPositiveData", 422, "invalid_request", "nothing was done: /(path|into) "): "what the disk has there",
    ("RejectedPositiveData", 422, "invalid_request", "must add up to more than 0"): "the sum of several fields",
    ("RejectedPositiveData", 422, "invalid_request", "/amount is required"): "depends on the type",
    ("RejectedPositiveData", 422, "invalid_request", "digits (before|after) the point"): "decimals, not floats",
    ("RejectedPositiveData", 422, "invalid_request", "belongs to .*, not to"): "depends on the type",
    ("RejectedPositiveData", 422, "invalid_request", "is given with `original`"): "one of two fields",
    ("RejectedPositiveData", 422, "invalid_request", "/original is missing"): "depends on the type",
    ("RejectedPositiveData", 422, "invalid_request", "one of the claimed addresses"): "which there are, the LAN says",
    ("RejectedPositiveData", 422, "invalid_request", "must be an ISO 8601 time"): "leap seconds, which Python has not",
    ("RejectedPositiveData", 422, "invalid_request", "must be a moment with its offset"): "the same",
    ("RejectedPositiveData", 422, "invalid_request", "not a known member"): "the configuration admits more",
    ("RejectedPositiveData", 422, "amount_exceeds", ""): "what an original allows, the records say",
}
#: Call -> accepted request that breaks the description, and reason.
TAKEN: dict[str, tuple[str, str]] = {
    "list_events": ("Last-Event-ID", "nothing looks at it where no stream is asked for"),
    "read_feed": ("Last-Event-ID", "nothing looks at it where no stream is asked for"),
}


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


def faults(case: Any, session: Session, home: Path) -> tuple[Any, str]:
    """Make a request. Return the response, and the faults as text or ""."""
    admin = case.operation.definition.raw["x-posd-socket"] == ["admin"]
    _inside(case, home)
    response = case.call(base_url="http://admin" if admin else "http://till", session=session, timeout=STUCK_SECONDS)
    try:
        case.validate_response(response)
    except FailureGroup as group:
        found = [failure for failure in group.exceptions if not _listed(failure, case, response)]
        if found:
            told = [f"{type(item).__name__}: {item}" for item in found]
            return response, "\n".join(
                [*told, case.as_curl_command(), f"{response.status_code} {response.text[:2000]}"]
            )
    return response, ""


def _inside(case: Any, home: Path) -> None:
    """Prevent backups outside this directory."""
    if isinstance(case.body, dict):
        for name in ("path", "into"):
            if isinstance(case.body.get(name), str) and case.body[name].startswith("/"):
                case.body[name] = f"{home}/backups{case.body[name].replace('/..', '')}"


def _listed(failure: Failure, case: Any, response: Any) -> bool:
    """Return whether a failure is a listed exception."""
    kind = type(failure).__name__
    name = case.operation.definition.raw["operationId"]
    if (
        kind == "AcceptedNegativeData" and response.status_code == 410
    ):  # posd replies to a known id before it checks the request
        return True
    # this response says itself that it differs from the description
    if kind == "JsonSchemaError" and case.query.get("amounts") == "text":
        return True
    if kind == "AcceptedNegativeData" and "in header - object with unexpected properties" in str(failure):
        return True  # a server ignores an unknown header
    if kind == "AcceptedNegativeData":
        return name in TAKEN and TAKEN[name][0] in str(failure)
    try:
        problem = json.loads(response.content)
    except ValueError:
        return False
    code = problem.get("code", "") if isinstance(problem, dict) else ""
    return any(
        (known, status, of) == (kind, response.status_code, code) and re.search(words, problem["detail"])
        for known, status, of, words in REFUSALS
    )
