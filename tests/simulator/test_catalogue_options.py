"""`posd simulate --list`, `--show`, and `--scenario` with a file of the user's own."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from posd.cli.simulate import simulate as command
from posd.simulator.scenario import CHOICE, payments, prints
from tests.rig.signing import Signer
from tests.simulator.conftest import CHARGE, PATIENCE, request
from tests.simulator.processes import simulate


@pytest.fixture(autouse=True)
def kept_signals() -> Iterator[None]:
    """Restore the signal handlers, because the command installs its own handlers in the tests' process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_list_in_a_pipe_has_a_line_for_each_scenario() -> None:
    lines = CliRunner().invoke(command, ["--list"]).output.splitlines()
    names = {line.split("\t")[0] for line in lines[1:]}
    assert names == set(payments()) | {CHOICE + name for name in prints()}
    row = next(line for line in lines if line.startswith("lost-acknowledgement\t")).split("\t")
    scenario = payments()["lost-acknowledgement"]
    assert row == ["lost-acknowledgement", scenario.amount, "metadata", scenario.summary, scenario.when]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--control", "0.0.0.0:0"], "loopback"),
        (["--control", "6870"], "--control"),
        (["--serial", "A", "--serial", "A"], "twice"),
        (["--serial", "A", "--terminals", "2"], "--terminals"),
        (["--terminals", "0"], "--terminals"),
        (["--scenario", "lost-acknowledgment"], "did you mean lost-acknowledgement?"),
        (["--scenario", "x"], "--list"),
        (["--virtual"], "--control"),
        (["--scenario", "certificate-expired"], "--http"),
        (["--set", "auth=hmac", "--set", "business-code=@/nowhere/code"], "cannot read /nowhere/code"),
        (["--set", "auth=hmac", "--set", "business-code=@/dev/null"], "/dev/null is empty"),
        (["--set", "edition=2027"], "2026"),
        (["--set", "wait-seconds=soon"], "wait-seconds"),
        (["--set", "wait-seconds"], "wait-seconds"),
        (["--set", "color=red"], "color is not a setting"),
    ],
)
def test_a_wrong_option_exits_with_2_and_a_reason(options: list[str], named: str) -> None:
    result = CliRunner().invoke(command, ["--http", "--listen", "127.0.0.1:0", *options])
    assert result.exit_code == 2
    assert named in result.stderr


async def test_a_code_from_a_file_is_used_and_never_shown(tmp_path: Path) -> None:
    file, ledger = tmp_path / "code", tmp_path / "ledger.jsonl"
    file.write_text("a-secret-code\nwhat follows does not count\n")
    options = ["--http", "--set", "edition=2026", "--set", "auth=hash-encrypt", "--set", f"business-code=@{file}"]
    options += ["--set", "encrypt-replies=true", "--ledger", str(ledger)]
    async with (
        simulate(*options, tmp=tmp_path) as (process, ready),
        httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client,
    ):
        signed = Signer("hash-encrypt", "a-secret-code", "SN-0001").sign(request(), time.time())
        url = ready["base_url"] + CHARGE
        taken = await client.post(url, content=signed.content, headers=signed.headers)
        assert set(taken.json()) == {"data"}
        assert json.loads(signed.read(taken.content))["status"] == "TERMINAL_ACKNOWLEDGED"
        await process.record(kind="final")
        assert (await client.post(url, json=request())).status_code == 401
        refused = await process.record(kind="unauthorized")
    assert (refused["path"], refused["reason"]) == (CHARGE, "the header Authorization is missing")
    assert "a-secret-code" not in ledger.read_text()
