"""The simulator's listener ends every connection at its stop, also one that was accepted a moment before."""

import asyncio
import gc
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette

from posd import tls
from posd.simulator.listener import Listener, bind, server_context

#: Steps of the event loop between a client's connection and the stop: from before it is accepted to well into its
#: handshake.
STEPS = range(12)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    made = tls.init(Path(tmp_path_factory.mktemp("tls")) / "tls", names=["localhost"], addresses=["127.0.0.1"])
    return server_context(made.certificate, made.private_key)


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """Let the garbage collector look only at what the test makes: all else takes it most of the test's time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.quick(1)
@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_connection_of_the_moment_of_the_stop_is_ended(context: ssl.SSLContext, encrypted: bool) -> None:
    """Its client reads the end at once, and no socket is left to the garbage collector (which would warn)."""
    hello = ssl.MemoryBIO()
    client_side = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client_side.do_handshake()
    begun = hello.read() if encrypted else b"GET / HTTP/1.1\r\n"
    for steps in STEPS:
        bound = bind("127.0.0.1", 0)
        listener = Listener(Starlette(), context if encrypted else None)
        listener.start(bound)
        with socket.create_connection(bound.getsockname(), timeout=30) as client:
            client.sendall(begun)
            for _ in range(steps):
                await asyncio.sleep(0)
            await listener.stop()
            with suppress(ConnectionResetError):
                while client.recv(65536):
                    pass
        gc.collect()
