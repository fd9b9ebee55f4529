"""During its stop, posd refuses each request at once.

posd calls no terminal for the request, and the stop does not wait.
"""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from posd.base.problems import Problem
from posd.terminals.announcements import Announcement
from tests.services.inside import CHARGE, RECEIPT, composed


@pytest.mark.parametrize("what", ["payments", "printing"])
async def test_a_start_during_the_stop_probes_no_terminal(tmp_path: Path, what: str) -> None:
    """A second address of the terminal accepts connections and sends nothing, so a probe would take long."""
    looked = asyncio.Event()
    silent = await asyncio.start_server(lambda _reader, _writer: looked.set(), "127.0.0.1", 0)
    async with composed(tmp_path, announced=True) as inside:
        port, at = silent.sockets[0].getsockname()[1], "2026-01-02T03:04:05.000Z"
        inside.fleet.announce(Announcement("b", inside.terminal.serial, ("127.0.0.1",), port, None, None, at))
        await (inside.payments if what == "payments" else inside.printing).drain(0)
        starting = asyncio.create_task(
            inside.payments.start(str(uuid4()), CHARGE)
            if what == "payments"
            else inside.printing.start("job-1", RECEIPT)
        )
        looking = asyncio.create_task(looked.wait())
        await asyncio.wait({starting, looking}, return_when=asyncio.FIRST_COMPLETED)
        assert not looked.is_set()
        looking.cancel()
        with pytest.raises(Problem) as refused:
            await starting
        assert refused.value.code == "draining"
    silent.close()


async def test_a_stop_does_not_wait_for_a_terminal_to_be_announced(tmp_path: Path) -> None:
    async with composed(tmp_path, announced=True) as inside:
        inside.fleet.withdraw("a")
        inside.fleet.state.announced_until = float("inf")  # only a stop ends this wait
        choosing = asyncio.create_task(inside.fleet.of(inside.terminal.serial).choose())
        await asyncio.sleep(0)  # the task begins to wait at its first step
        inside.fleet.cancel_calls()
        assert await choosing is None
