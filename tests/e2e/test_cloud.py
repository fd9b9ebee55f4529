"""Terminals in the cloud beside a terminal on the network: paths, headers, callbacks."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.rig.chains import operation
from tests.rig.daemon import running
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.shop import QUIET, Shop, answering, hanging_up, knowing, nothing_to_correct
from tests.rig.simulated import configured_otherwise, public
from tests.rig.terminal import scripted_terminal
from tests.rig.webhooks import everything

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Serials of the scripted fleet, and the percent-encoded form of the last serial.
LOCAL, CLOUD, ENCODED = "SN-LOCAL", "SN/CLOUD +1%", "SN%2FCLOUD%20%2B1%25"
#: Base path of the cloud service.
GATEWAY = "/gateway/v7"

SECRETS = ("key-from-a-file", "Bearer key-in-the-configuration", "key-of-the-unit", "key-of-this-terminal")
HEADERS = f"""
[terminal_defaults]
headers = {{X-Store = "14"}}
[profile]
headers = {{X-Lan = "lan"}}
[profile.cloud]
headers = {{X-Api-Key = {{file = "service.key"}}, Authorization = "{SECRETS[1]}", X-Unit = {{credential = "unit.key"}}}}
[profile.cloud.search]
pointer = "/found"
[profile.cloud.post-tip]
abortable = false
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mixed() -> AsyncIterator[dict[str, Shop]]:
    """Yield a daemon with one scripted terminal on the network and one in the cloud, each with headers."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="posd-")))
        (home / "service.key").write_text(f"{SECRETS[0]}\n")
        (home / "credentials").mkdir()
        (home / "credentials" / "unit.key").write_text(SECRETS[2])
        near = await stack.enter_async_context(scripted_terminal(home, LOCAL))
        far = await stack.enter_async_context(scripted_terminal(home, "service"))
        daemon = await stack.enter_async_context(running(home, ""))
        cloud = far.toml.replace(far.base_url, f"{far.base_url}{GATEWAY}/").replace('"service"', f'"{CLOUD}"')
        cloud += f'access_mode = "cloud"\nheaders = {{X-Terminal = "{SECRETS[3]}"}}\n'
        daemon.environment = {"CREDENTIALS_DIRECTORY": str(home / "credentials")}
        entries = f"{QUIET}{HEADERS}{near.toml}{cloud}"
        await configured_otherwise(daemon, {"[discovery]": f"{entries}[discovery]"} | public(daemon))
        yield {serial: Shop(daemon, terminal, repeat(serial)) for serial, terminal in ((LOCAL, near), (CLOUD, far))}
        await nothing_to_correct(daemon)


async def test_abort_and_search_use_the_rows_of_the_cloud_profile(mixed: dict[str, Shop]) -> None:
    seen = {}
    for serial, shop in mixed.items():
        shop.terminal.abort = answering(200, b"{}")
        item = await operation(shop, "charge").begin()
        assert (await item.post("abort")).status == 202
        abort = shop.terminal.requests[-1]
        await item.finish("TERMINAL_CANCELED")
        lost = operation(shop, "capture")
        shop.terminal.start = hanging_up
        assert (await lost.put(transaction_reference=str(uuid4()))).json["phase"] == "in_doubt"
        found = lost.states()
        shop.terminal.search = answering(200, {"found": [found]}) if serial == CLOUD else knowing(found)
        outcome = (await lost.post("reconcile")).json["outcome"]
        assert (outcome["result"], outcome["transaction_reference"]) == ("approved", lost.reference)
        search = shop.terminal.searches[-1]
        assert search.json == {"client_transaction_id": lost.identity}
        seen[serial] = [(abort.method, abort.path), (search.method, search.path)]
    assert seen == {
        LOCAL: [("GET", "/terminal/v1/abort"), ("POST", "/terminal/v1/transaction_search_online")],
        CLOUD: [
            ("POST", f"{GATEWAY}/terminal/v1/{ENCODED}/sync/abort"),
            ("POST", f"{GATEWAY}/terminal/v1/{ENCODED}/sync/transaction_search_online"),
        ],
    }


async def test_the_headers_of_the_cloud_go_only_to_the_cloud(mixed: dict[str, Shop]) -> None:
    """Start, abort and search send these headers. No stored or shown text contains a secret."""
    names = ("x-store", "x-lan", "x-api-key", "authorization", "x-unit", "x-terminal")
    expected = {LOCAL: ["14", "lan", None, None, None, None], CLOUD: ["14", None, *SECRETS]}
    for serial, shop in mixed.items():
        shop.terminal.requests.clear()
        shop.terminal.searches.clear()
        shop.terminal.abort, shop.terminal.search = answering(409), answering(500, b"no")
        item = await operation(shop, "pre-auth").begin()
        problem = await item.post("abort")
        assert problem.json["code"] == "nothing_running"
        await item.post("reconcile")
        await item.finish()
        sent = [*shop.terminal.requests, *shop.terminal.searches]
        assert len(sent) >= 3
        for request in sent:
            assert [request.headers.get(name) for name in names] == expected[serial], request.path
            assert request.headers["content-type" if request.body else "connection"] in ("application/json", "close")
    daemon = mixed[CLOUD].daemon
    kept = f"{everything(daemon)}{daemon.lines}{(await daemon.call('GET', '/terminals?all=true')).json}"
    assert not [secret for secret in SECRETS if secret in kept]


async def test_a_callback_token_is_valid_at_the_public_and_the_local_address(mixed: dict[str, Shop]) -> None:
    near, far = await operation(mixed[LOCAL], "charge").begin(), await operation(mixed[CLOUD], "charge").begin()
    daemon = mixed[CLOUD].daemon
    addresses = [item.requests[0].callback for item in (near, far)]
    assert addresses[0].startswith(f"https://127.0.0.1:{daemon.port}/webhooks/transactions/{near.identity}/")
    assert addresses[1].startswith(f"https://localhost:{daemon.port}/webhooks/transactions/{far.identity}/")
    content = body(far.identity, "TERMINAL_ACKNOWLEDGED", serial=CLOUD)
    of_another = f"{addresses[1].rpartition('/')[0]}/{addresses[0].rpartition('/')[2]}"
    assert await deliver(of_another, content, daemon.ca) == 403
    assert await deliver(addresses[1].replace("localhost", "127.0.0.1"), content, daemon.ca) == 200
    for item in (near, far):
        await item.finish()
        assert (await item.get())["outcome"]["result"] == "approved"
