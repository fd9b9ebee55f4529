"""Several terminals in one process."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from posd.simulator import Settings, SettingsError, TerminalGroup
from tests.simulator.processes import lines_of, simulate
from tests.support.ports import reserve

Make = Callable[..., Settings]


@pytest.fixture
def several(settings: Make, tmp_path: Path) -> Callable[..., list[Settings]]:
    """Make settings for terminals with these serials, each with a directory and a ledger of its own."""

    def make(*serials: str, **changes: object) -> list[Settings]:
        made = []
        for number, serial in enumerate(serials):
            state = tmp_path / str(number)
            state.mkdir(exist_ok=True)
            made.append(settings(serial=serial, state=state, ledger_file=state / "ledger.jsonl", **changes))
        return made

    return make


async def test_where_one_cannot_start_none_does(several: Callable[..., list[Settings]], settings: Make) -> None:
    port = reserve()
    first, second = several("A", "B")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = [
            settings(serial="A", state=first.state, port=port),
            settings(serial="B", state=second.state, port=taken.getsockname()[1]),
        ]
        with pytest.raises(SettingsError, match="--listen"):
            async with TerminalGroup(wanted):
                pytest.fail("started")
    with socket.create_server(("127.0.0.1", port)):
        pass  # the first one is gone


async def test_as_a_process_with_directories_and_ledgers_by_serial(tmp_path: Path) -> None:
    port, ledgers = reserve(), tmp_path / "ledgers"
    serials = ("SN-1", "../SN/2")
    names = [name for serial in serials for name in ("--serial", serial)]
    options = ("--http", "--listen", f"127.0.0.1:{port}", "--state", str(tmp_path / "state"))
    async with (
        simulate(*options, *names, "--ledger", str(ledgers), tmp=tmp_path) as (process, first),
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        assert process.stdout is not None
        second = json.loads(await process.stdout.readline())
        ready = [first, second]
        assert [line["serial"] for line in ready] == list(serials)
        assert urlsplit(first["base_url"]).port == port
        for line in ready:
            charge = f"{line['base_url']}/terminal/v1/async/charge"
            assert (await client.post(charge, json={"client_transaction_id": "x"})).status_code == 422
            assert json.loads(await process.stdout.readline())["serial"] == line["serial"]
    assert [len(lines_of(ledgers / name, "start")) for name in ("SN-1.jsonl", "%2E%2E%2FSN%2F2.jsonl")] == [1, 1]
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"SN-1", "%2E%2E%2FSN%2F2"}
