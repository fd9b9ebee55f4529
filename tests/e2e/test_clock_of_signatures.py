"""posd refuses a start because of an untrusted clock only if the call's signature contains the time."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.conftest import CHARGE
from tests.e2e.test_clock import unsure
from tests.rig.daemon import running
from tests.rig.faketime import FakeTime
from tests.rig.needs import needs
from tests.rig.terminal import scripted_terminal


@pytest.mark.slow
@needs("faketime")
async def test_only_signed_calls_need_the_clock(home: Path) -> None:
    clock = FakeTime(home / "clock")
    (home / "2").mkdir()
    (home / "code").write_text("5f1e0c8a7b3d49e2a6c4d80f9b2e7135")
    async with scripted_terminal(home, "SN-PLAIN") as plain, scripted_terminal(home / "2", "SN-SIGNED") as signed:
        entries = f'{plain.toml}{signed.toml}auth = "hash-encrypt"\nbusiness_code = {{file = "code"}}\n'
        async with running(home, entries, environment=clock.environment) as posd:
            clock.move(days=40)
            await unsure(posd, "stepped_ahead")
            refused = await posd.call("PUT", f"/transactions/{uuid4()}", CHARGE | {"terminal": "SN-SIGNED"})
            assert (refused.status, refused.json["code"]) == (503, "clock_unsure"), refused.body
            assert "signed with the time" in refused.json["detail"]
            assert signed.requests == []
            taken = await posd.call("PUT", f"/transactions/{uuid4()}", CHARGE | {"terminal": "SN-PLAIN"})
            assert (taken.status, taken.json["phase"]) == (201, "active"), taken.body
