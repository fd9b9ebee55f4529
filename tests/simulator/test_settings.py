"""Settings that cannot be, and that the simulator stands alone."""

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from posd.simulator import Settings, SettingsError, Simulator

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"serial": ""}, "serial"),
    ({"serial": "x" * 64}, "serial"),
    ({"private_key": None}, "key"),
    ({"ca_certificate": Path("ca.crt")}, "CA key"),
    ({"move_ports": (6869, 70000)}, "port 70000"),
    ({"scenario": "aprove"}, "--list"),
    ({"speed": 0}, "speed"),
    ({"wait_seconds": -1}, "wait-seconds"),
    ({"delivery_timeout": 0}, "delivery-timeout"),
    ({"tip": Decimal("-0.01")}, "tip -0.01 must not be negative"),
    ({"tip": Decimal("0.00001")}, "tip"),
    ({"tip": Decimal(10**12)}, "tip"),
    ({"tip": Decimal("NaN")}, "tip"),
    ({"tip": 1.5}, "tip"),
    ({"port": 70000}, "port"),
    ({"host": "localhost"}, "IP address"),
    ({"mdns_interfaces": ("eth0",)}, "IP address"),
]


@pytest.mark.parametrize(("changes", "named"), WRONG)
def test_a_wrong_setting_is_named(settings: Callable[..., Settings], changes: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        settings(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"certificate": Path("/nonexistent")},
        {"trust": Path("/nonexistent")},
        {"state": Path("/nonexistent")},
        {"scenario_file": Path("/nonexistent.toml")},
        {"ledger_file": Path("/nonexistent/ledger")},
        {"host": "192.0.2.1"},
    ],
)
async def test_what_cannot_be_used_is_an_error_at_the_start(
    settings: Callable[..., Settings], changes: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError, match=r"/nonexistent|192\.0\.2\.1"):
        async with Simulator(settings(**changes)):
            pytest.fail("started")


def test_the_simulator_imports_nothing_else_of_posd() -> None:
    code = "import sys, posd.simulator; print(*(name for name in sys.modules if name.startswith('posd.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    strangers = [name for name in done.stdout.split() if not name.startswith("posd.simulator")]
    assert strangers == []
    assert "posd.simulator.terminal" in done.stdout.split()


async def test_a_scenario_that_cannot_begin_is_an_error_at_the_start(settings: Callable[..., Settings]) -> None:
    plain = settings(certificate=None, private_key=None, scenario="certificate-expired")
    with pytest.raises(SettingsError, match=r"certificate-expired: .*--http"):
        async with Simulator(plain):
            pytest.fail("started")
