"""Assumptions of `posd.httpd.connection` about Hypercorn. If one of these tests fails, Hypercorn has changed.

tests/web/test_connection.py checks on real sockets that Hypercorn's server reads and closes a connection.
"""

from pathlib import Path

from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config

from posd.base.clocks import wall
from posd.httpd.admission import ListenerPolicy, RejectedTraffic
from posd.httpd.connection import HttpConnection, ListenerContext

POSD = Path(__file__).parents[2] / "posd"


def test_hypercorns_connection_has_only_the_methods_that_posd_knows() -> None:
    own = {name for name, value in vars(TCPServer).items() if callable(value)}
    reading = {"_read_data", "_close", "_initiate_server_close", "_idle_timeout"}
    assert own == {"__init__", "__await__", "run", "protocol_send"} | reading
    assert (own - {"__init__"}) & set(vars(HttpConnection)) == {"_read_data"}  # posd overrides only this method
    # The methods of Hypercorn's protocol, and of its task that ends an idle connection.
    assert {"initiate", "handle", "restart", "stop"} <= set(vars(HttpConnection))


async def nothing(*_: object) -> None:
    """Send no response."""


def made() -> ListenerContext:
    policy = ListenerPolicy(name="test", keep_alive_seconds=1.5, max_connections=1)
    return ListenerContext(nothing, policy, RejectedTraffic(), wall)


async def test_when_idle_connections_are_ended_hypercorns_context_is_marked_as_terminated() -> None:
    context = made()
    assert isinstance(context, WorkerContext)
    assert not context.terminated.is_set()
    await context.terminate_idle()
    assert context.terminated.is_set()


def test_every_setting_that_posd_uses_exists_in_hypercorn() -> None:
    given, plain = made().config, Config()
    changed = {name for name in vars(given) if getattr(given, name) != getattr(plain, name)}
    assert changed == {"errorlog", "include_server_header", "keep_alive_timeout"}
    assert given.read_timeout is None  # posd sets only the idle time


def test_only_one_module_imports_hypercorn_for_more_than_its_types() -> None:
    found = {
        path.stem
        for path in POSD.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("from hypercorn", "import hypercorn")) and not line.startswith("from hypercorn.typing ")
    }
    assert found == {"connection", "network"}
