"""Several terminals in one process."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.simulator.processes import lines_of, simulate
from tests.support.ports import reserve


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
