"""After the loss of a lane's disk, head office names the started payments, and posd sends none of them again."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.collect.postgres import postgres
from tests.e2e.test_backup import posd_command
from tests.relay.lane import Lane, with_feed
from tests.relay.nats_server import NatsServer
from tests.relay.test_relay import paid
from tests.rig.needs import needs
from tests.rig.shop import open_shop

pytestmark = [pytest.mark.slow, needs("nats-server", "postgres", "initdb")]


async def test_started_payments_are_known_on_the_new_machine(tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        with_feed(home)
        async with open_shop(home) as shop, NatsServer(tmp_path) as server, postgres() as database:
            daemon, lane = shop.daemon, Lane(shop.daemon, server)
            (home / "config.d" / "collect.toml").write_text(
                f'[collect]\nservers = ["{server.url}"]\ndsn = "{database.dsn}"\n'
            )
            assert (await posd_command(daemon, "collect", "--init"))[0] == 0
            done, open_one = await paid(shop), await shop.started(sale="table 7")
            await lane.once()
            assert (await posd_command(daemon, "collect", "--once"))[0] == 0

            await daemon.kill()
            for path in (home / "state").iterdir():
                if path.is_file():
                    path.unlink()
            code, ids, said = await posd_command(daemon, "collect", "ids", "--lane", lane.name, "--since", "2026-01-01")
            assert code == 0, said
            (home / "lane.ids").write_text(ids)
            for arguments in (("--ids", str(home / "lane.ids")), ("--new-callback-key", "--operator", "Ana")):
                code, _, said = await posd_command(daemon, "restore", *arguments, "--yes")
                assert code == 0, said
            await daemon.start()
            sent = len(shop.terminal.requests)
            for payment in (done, open_one):
                assert (await payment.put()).json["phase"] == "in_doubt"
            assert len([item for item in shop.terminal.requests[sent:] if item.method == "POST"]) == 0

            refused = await lane.start("--once")
            assert await refused.ended() == 1
            await lane.once("--begin")
            assert (await posd_command(daemon, "collect", "--once"))[0] == 0
            rows = await database.rows("SELECT client_transaction_id, result, in_doubt FROM posd.payments")
            assert sorted(rows) == sorted([(done.identity, "approved", True), (open_one.identity, None, True)])
            assert (await posd_command(daemon, "collect", "--check"))[0] == 0
