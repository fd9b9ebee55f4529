"""Each example of the description belongs to a call, and the daemon accepts the examples of requests.

tests/openapi/test_document.py tests that each example matches its type, with every field and no other field.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.api import routes
from posd.api.openapi import EVERY_CALL, Examples
from posd.base.problems import PROBLEMS
from tests.openapi import released
from tests.openapi.simulated import SERIAL, calling, opened
from tests.rig.daemon import Daemon

DOCUMENT = released.today()
EXAMPLES = Examples.read()
#: The id of the payment that other examples name.
ORIGINAL = "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"


def examples() -> list[Any]:
    """Return path, method, operation, name and body of every example of a request, with the charge first."""
    return [
        pytest.param(method, path, operation, example["value"], id=f"{operation['operationId']}-{name}")
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
        for name, example in operation["requestBody"]["content"]["application/json"]["examples"].items()
    ]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Yield a daemon with the approved payment of the examples."""
    with opened() as daemon, calling(daemon) as client:
        at = f"/v1/transactions/{ORIGINAL}"
        assert client.put(at, json={"terminal": SERIAL, "amount": {"subtotal_iva0": 1}}).status_code == 201
        assert client.get(f"{at}/outcome").json()["result"] == "approved"
        yield daemon


@pytest.mark.quick(3)
@pytest.mark.parametrize(("method", "path", "operation", "body"), examples())
def test_the_daemon_accepts_an_example(daemon: Daemon, method: str, path: str, operation: Any, body: Any) -> None:
    where = path.format(client_transaction_id=uuid4(), print_job_id=f"job-{uuid4()}", serial=SERIAL)
    body = body | {name: f"{daemon.directory}{body[name]}" for name in ("path", "into") if name in body}
    body |= dict.fromkeys({"after", "up_to"} & body.keys(), 0)  # the feed of this daemon has fewer lines
    if "path" in body:
        Path(body["path"]).parent.mkdir(parents=True, exist_ok=True)  # another example may have made the payment
    with calling(daemon, admin=operation["x-posd-socket"] == ["admin"]) as client:
        if "base_url" in body:  # the terminal in the configuration stands for the example's device
            body |= {"base_url": client.get(f"/v1/terminals/{SERIAL}").json()["base_url"]}
        reply = client.request(method.upper(), where, json=body)
        if method == "put" and path.startswith("/v1/transactions"):
            assert reply.status_code == 201, reply.text
            assert client.get(f"{where}/outcome").json()["result"] == "approved"
    if reply.status_code >= 400:  # the payment or restore does not exist, but the daemon accepted the body
        assert reply.json()["code"] == "not_found"
    else:
        assert str(reply.status_code) in operation["responses"]


def test_every_example_belongs_to_a_call() -> None:
    calls = {route.name: route for route in routes.ALL}
    assert set(EXAMPLES.bodies) == {name for name, route in calls.items() if route.body is not None}
    for name, examples in EXAMPLES.answers.items():
        assert set(map(int, examples)) <= set(calls[name].answers)
    named = [item for found in EXAMPLES.answers.values() for item in found.values() if isinstance(item, str)]
    assert set(named) == set(EXAMPLES.documents)


def test_every_problem_of_every_call_has_an_example() -> None:
    missing = [code for code in PROBLEMS if code not in EXAMPLES.problems]
    missing += [
        f"{code} of {route.name}"
        for route in routes.ALL
        for code in route.problems
        if code in EXAMPLES.problems and EXAMPLES.calls(route.name, code) is None
    ]
    assert not missing, f"posd/api/examples.json lacks examples of these problems: {missing}"


def test_every_example_of_a_problem_belongs_to_a_call() -> None:
    of_calls = {route.name: route.problems for route in routes.ALL}
    for code, found in EXAMPLES.problems.items():
        named = [name for calls in found if calls != EVERY_CALL for name in calls.split()]
        assert len(set(named)) == len(named), code
        assert [name for name in named if code not in of_calls[name]] == [], code
