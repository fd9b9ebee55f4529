"""Query parameters and headers. The daemon reads exactly the parameters and headers of the description."""

import ast
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest
import pytest_asyncio

import posd
from posd.api import routes
from posd.calls.parameters import Route
from tests.rig.daemon import Daemon, running
from tests.rig.described import described
from tests.rig.tables import try_each

DESCRIBED = described()
SERIAL = "SN-0001"
#: Parameters in paths.
PATH = {"client_transaction_id": str(UUID(int=1)), "print_job_id": "receipt-1", "serial": SERIAL, "id": "1"}
#: Headers of HTTP itself, which OpenAPI leaves undescribed.
OF_HTTP = {"accept"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon() -> AsyncIterator[Daemon]:
    with TemporaryDirectory(prefix="posd-") as directory:
        async with running(Path(directory), f'[[terminals]]\nserial = "{SERIAL}"\n') as found:
            yield found


def named(route: Route, place: str) -> set[str]:
    """Return the names of a call's parameters of one kind, by the description."""
    operation = DESCRIBED.operation(route.method, route.path)
    assert operation is not None
    found = [row for row in operation.get("parameters", []) if row["in"] == place]
    return {f"{row['name']}.KEY" if row.get("explode") else row["name"] for row in found}


@pytest.mark.asyncio(loop_scope="module")
async def test_exactly_the_accepted_query_parameters_are_described(daemon: Daemon) -> None:
    """The refusal of an unknown parameter lists the known parameters."""
    taken = {}
    for route in routes.ALL:
        path, body = f"{route.path.format_map(PATH)}?nowhere=x", {} if route.method != "GET" else None
        socket = daemon.admin_socket if route.admin else daemon.till_socket
        reply = await daemon.call(route.method, path, body, base="", socket=socket)
        assert [item["path"] for item in reply.json["errors"]] == ["nowhere"], route.name
        taken[route.name] = set(reply.json["detail"].rpartition(": ")[2].split(", "))

    def check(route: Route) -> None:
        assert taken[route.name] == named(route, "query")

    try_each([(route.name, {"route": route}) for route in routes.ALL], check)


def test_only_described_headers_are_read() -> None:
    """A handler gets only the headers of its call. HTTP itself uses the other headers."""
    read = set()
    for package in ("calls", "api", "payments", "printing"):
        for file in (Path(posd.__file__).parent / package).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                match node:
                    case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="headers"), attr="get" | "getlist")):
                        read.add(ast.unparse(node.args[0]).strip("'"))
    assert read == OF_HTTP | {"parameter.name"}


def test_each_header_of_a_call_is_described() -> None:
    for route in routes.ALL:
        assert named(route, "header") == {row.name for row in route.headers}, route.name
