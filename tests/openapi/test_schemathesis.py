"""schemathesis over the running daemon, by its default checks: what it finds is a fault, or is listed here."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.core.failures import Failure, FailureGroup

from tests.openapi import released
from tests.openapi.gateway import Gateway, opened

#: Generated requests of each call, beside those that schemathesis derives from the description.
EXAMPLES = 8
#: Longest that an answer may take, in seconds: then it is stuck.
STUCK_SECONDS = 30.0

#: What a schema cannot say, or not without being unreadable: kind of failure, status, code, words of the answer -> why.
REFUSALS: dict[tuple[str, int, str, str], str] = {}

BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with TemporaryDirectory(prefix="posd-", dir="/tmp") as directory, opened(Path(directory)) as gateway:
        yield gateway


schema = schemathesis.openapi.from_dict(released.today())


@schema.parametrize()
@BOUNDED
def test_no_failure_but_listed_refusals(case: Any, gateway: Gateway) -> None:
    admin = case.operation.definition.raw["x-posd-socket"] == ["admin"]
    inside(case, gateway.home)
    response = case.call(base_url=gateway.admin if admin else gateway.till, timeout=STUCK_SECONDS)
    try:
        case.validate_response(response)
    except FailureGroup as group:
        faults = [failure for failure in group.exceptions if not listed(failure, response)]
        if faults:
            told = "\n".join(f"{type(item).__name__}: {item}" for item in faults)
            answer = f"{response.status_code} {response.text[:2000]}"
            raise AssertionError(f"{told}\n{case.as_curl_command()}\n{answer}") from None


def inside(case: Any, home: Path) -> None:
    """Let no backup be written outside of this directory."""
    if isinstance(case.body, dict):
        for name in ("path", "into"):
            if isinstance(case.body.get(name), str) and case.body[name].startswith("/"):
                case.body[name] = f"{home}/backups{case.body[name].replace('/..', '')}"


def listed(failure: Failure, response: Any) -> bool:
    """Whether a failure is a refusal that is known."""
    try:
        problem = json.loads(response.content)
    except ValueError:
        return False
    code = problem.get("code", "") if isinstance(problem, dict) else ""
    return any(
        (kind, status, known) == (type(failure).__name__, response.status_code, code)
        and re.search(words, problem["detail"])
        for kind, status, known, words in REFUSALS
    )
