"""The metrics of a real daemon. Metrics have Prometheus' text format on every path, and are correct after a load."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryDirectory

import httpx2
import pytest
import pytest_asyncio

from posd.daemon.metrics import FAMILIES, OPEN_PHASES
from tests.rig.daemon import Daemon
from tests.rig.events import RESULTS, body
from tests.rig.exposition import Family, read
from tests.rig.outcomes import every_outcome
from tests.rig.ports import reserve
from tests.rig.shop import Shop, open_shop
from tests.rig.terminal import PATIENCE_SECONDS
from tests.rig.webhooks import address, deliver

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[tuple[Shop, int, Path]]:
    """Yield a shop after a load, the port of its metrics, and their text file."""
    with TemporaryDirectory(prefix="posd-") as name:
        directory, port = Path(name), reserve()
        file = directory / "textfile" / "posd.prom"
        extra = f'[metrics]\nlisten = "127.0.0.1:{port}"\ntextfile = "{file}"\ntextfile_seconds = 1\n'
        async with open_shop(directory, extra) as shop:
            await shop.daemon.log_line("metrics.not_written")
            await every_outcome(shop)
            yield shop, port, file


async def scrape(socket: Path, method: str = "GET") -> httpx2.Response:
    transport = httpx2.AsyncHTTPTransport(uds=str(socket), verify=False)
    async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
        return await client.request(method, "http://posd/metrics")


async def families(posd: Daemon) -> dict[str, Family]:
    answer = await scrape(posd.till_socket)
    assert answer.status_code == 200, answer.text
    return read(answer.text)


def value(found: dict[str, Family], name: str, **labels: str) -> float:
    """Return the value of a sample, or the count of a histogram."""
    family = found[name]
    sample = f"{name}_count" if family.kind == "histogram" else name
    (number,) = [
        number for (written, pairs), number in family.samples.items() if written == sample and dict(pairs) == labels
    ]
    return number


def total(found: dict[str, Family], name: str, **labels: str) -> float:
    """Return the sum of all samples with these labels."""
    samples = found[name].samples.items()
    return sum(number for (_, pairs), number in samples if labels.items() <= dict(pairs).items())


@pytest.mark.slow
async def test_the_metrics_are_exactly_those_of_the_table(place: tuple[Shop, int, Path]) -> None:
    found = await families(place[0].daemon)
    absent = {"posd_backup_last_success_timestamp_seconds", "posd_certificate_refusals", "posd_discovery_ignored_total"}
    assert set(FAMILIES) - set(found) == absent
    for name, family in found.items():
        table = FAMILIES[name]
        assert (family.kind, family.help, family.labels) == (table.kind, table.help, set(table.labels)), name


async def test_each_payment_is_counted_under_its_result_and_type_and_terminal(place: tuple[Shop, int, Path]) -> None:
    found = await families(place[0].daemon)
    for result in (*RESULTS.values(), "not_started"):
        assert total(found, "posd_payments_ended_total", result=result, type="charge") == 1, result
        assert value(found, "posd_payment_outcome_seconds", result=result) == 1, result
    assert total(found, "posd_payments_started_total", type="charge") == 7
    assert {dict(pairs)["terminal"][:3] for _, pairs in found["posd_payments_ended_total"].samples} == {"SN-"}
    assert value(found, "posd_start_refusals_total", code="terminal_busy") == 1
    assert value(found, "posd_payment_acknowledgement_seconds") == 5
    assert {phase: value(found, "posd_payments_open", phase=phase) for phase in OPEN_PHASES} == {
        "starting": 0,
        "in_doubt": 1,
        "active": 1,
    }
    assert 0 < value(found, "posd_payments_in_doubt_oldest_seconds") < 300
    oldest = value(found, "posd_payments_open_oldest_seconds")
    assert oldest >= value(found, "posd_payments_in_doubt_oldest_seconds")
    attention = {dict(pairs)["code"]: count for (_, pairs), count in found["posd_attention"].samples.items() if count}
    assert {"in_doubt", "quarantined_event"} <= attention.keys()
    assert value(found, "posd_searches_total", result="found") >= 1
    assert value(found, "posd_aborts_total", answer="taken") == 1


async def test_a_payment_known_only_from_events_does_not_count_as_started(place: tuple[Shop, int, Path]) -> None:
    posd, orphan = place[0].daemon, place[0].payment()
    started = total(await families(posd), "posd_payments_started_total")
    content = body(orphan.identity, "APPROVAL", None, orphan.serial)
    assert (await deliver(posd, address(posd, orphan.identity), content)).status == 200
    assert total(await families(posd), "posd_payments_started_total") == started


async def test_the_port_serves_the_metrics_and_nothing_else(place: tuple[Shop, int, Path]) -> None:
    shop, port, _ = place
    here = f"http://127.0.0.1:{port}"
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.get(f"{here}/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert set(read(answer.text)) == set(await families(shop.daemon))
        for path in ("/", "/v1/transactions", "/v1/health", "/metrics/x"):
            assert (await client.get(f"{here}{path}")).status_code == 404, path
        assert (await client.post(f"{here}/metrics", content=b"x" * 100_000)).status_code == 405
        for host, status in (
            (f"127.0.0.1:{port}", 200),
            (f"localhost:{port}", 200),
            ("[::1]", 200),
            ("shop.example", 421),
            (f"{gethostname()}.shop.example", 421),
            (f"127.0.0.1.shop.example:{port}", 421),
            (f"192.168.1.10:{port}", 200),
            (f"{gethostname().upper()}:{port}", 200),
            ("", 421),
        ):
            assert (await client.get(f"{here}/metrics", headers={"host": host})).status_code == status, host


@pytest.mark.slow
async def test_the_text_file_is_replaced_completely_and_its_failure_is_logged_once(
    place: tuple[Shop, int, Path],
) -> None:
    shop, _, file = place
    assert len([line for line in shop.daemon.lines if line["event"] == "metrics.not_written"]) == 1
    file.parent.mkdir()
    await shop.daemon.log_line("metrics.written")
    assert file.stat().st_mode & 0o777 == 0o644
    first = file.stat().st_ino
    assert set(read(file.read_text())) == set(await families(shop.daemon))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while file.stat().st_ino == first:
            assert read(file.read_text())
            await asyncio.sleep(0.05)
    assert len([line for line in shop.daemon.lines if line["event"].startswith("metrics.")]) == 2


async def test_the_metrics_read_the_time_of_a_backup_from_its_file(place: tuple[Shop, int, Path]) -> None:
    shop, _, _ = place
    backups = shop.daemon.database.with_name("backups")
    backups.mkdir()
    for name, at in (("posd-20261120T030000Z.db", 1_795_000_000), ("posd-20261119T030000Z.db", 1_794_000_000)):
        (backups / name).touch()
        os.utime(backups / name, (at, at))
    (backups / "posd-20261121T030000Z.db.partial").touch()
    try:
        found = await families(shop.daemon)
    finally:
        shutil.rmtree(backups)
    assert value(found, "posd_backup_last_success_timestamp_seconds") == 1_795_000_000
