"""Invalid settings, and the simulator's independence from posd."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from posd.simulator import Ledger, Settings, SettingsError, Simulator
from tests.rig.tables import every

CODE = "5f1e0c8a7b3d49e2a6c4d80f9b2e7135"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"serial": "x" * 64}, "serial"),
    ({"ca_certificate": Path("ca.crt")}, "CA key"),
    ({"move_ports": (6869, 70000)}, "port 70000"),
    ({"speed": 0}, "speed"),
    ({"tip": Decimal("-0.01")}, "tip -0.01 must not be negative"),
    ({"host": "localhost"}, "IP address"),
    ({"auth": "hmac"}, "needs a business-code"),
    ({"business_code": CODE}, "no use without auth"),
    ({"auth": "hmac", "business_code": CODE, "encrypt_replies": True}, "goes with auth hash-encrypt"),
    ({"minute_utc_offset": 1440}, "minute-utc-offset"),
    ({"amount_unit": "whole", "tip": Decimal("0.5")}, "tip 0.5 must be a whole number"),
]


@every(("changes", "named"), WRONG)
def test_a_wrong_setting_is_reported_by_name(
    settings: Callable[..., Settings], changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(SettingsError, match=named) as caught:
        settings(**changes)
    assert CODE not in str(caught.value)
    assert CODE not in repr(settings(auth="hmac", business_code=CODE))


@pytest.mark.parametrize(
    "changes",
    [{"certificate": Path("/nonexistent")}, {"scenario_file": Path("/nonexistent.toml")}, {"host": "192.0.2.1"}],
)
async def test_an_unusable_file_is_an_error_at_the_start(
    settings: Callable[..., Settings], changes: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError, match=r"/nonexistent|192\.0\.2\.1"):
        async with Simulator(settings(**changes)):
            pytest.fail("started")


def test_a_file_that_is_not_a_ledger_is_refused_and_not_changed(tmp_path: Path) -> None:
    path, content = tmp_path / "notes", "first\nlast line without an end"
    path.write_text(content)
    with pytest.raises(SettingsError, match=r"notes is not a ledger.*--ledger"):
        Ledger(path)
    assert path.read_text() == content
