"""SIGHUP. posd applies a changed configuration while payments continue. A wrong configuration changes nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.tls import issue
from tests.e2e.conftest import CHARGE
from tests.rig.daemon import Daemon, running, toml
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.manager import manager
from tests.rig.prints import EAGER, Job, knowing
from tests.rig.shop import Held
from tests.rig.tables import there
from tests.rig.terminal import ScriptedTerminal, scripted_terminal


@pytest.fixture
async def other(home: Path) -> AsyncIterator[ScriptedTerminal]:
    """Yield a second terminal that is not in the first configuration."""
    async with scripted_terminal(home, "SN-OTHER") as terminal:
        yield terminal


async def reloaded(posd: Daemon, terminals: str, extra: str = "", event: str = "config.loaded") -> dict[str, Any]:
    """Write another configuration, send SIGHUP, and wait for the log line with the result."""
    text = toml(posd.directory, terminals, extra).replace("127.0.0.1:0", f"127.0.0.1:{posd.port}")
    return await sent(posd, text, event)


async def sent(posd: Daemon, text: str, event: str) -> dict[str, Any]:
    posd.config_file.write_text(text)
    lines = len(posd.lines)
    there(posd.process).send_signal(signal.SIGHUP)
    return await posd.log_line(event, after=lines)


async def charge(posd: Daemon, terminal: str | None = None) -> tuple[str, Any]:
    identity = str(uuid4())
    reply = await posd.call("PUT", f"/transactions/{identity}", {**CHARGE, "terminal": terminal})
    return identity, reply.json | {"http": reply.status}


async def canceled(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    """End the first payment without a gap between its events, because posd searches soon after a gap."""
    for status, previous in (("TERMINAL_ACKNOWLEDGED", None), ("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED")):
        event = body(identity, status, previous, "SN-TEST")
        assert await deliver(terminal.requests[0].callback, event, posd.ca) == 200


async def test_a_reload_can_change_the_terminals(
    posd: Daemon, terminal: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    line = await reloaded(posd, terminal.toml + other.toml)
    assert line["detail"] == "terminals added: SN-OTHER"
    assert line["fleet"] == ["SN-TEST", "SN-OTHER"]
    open_there, document = await charge(posd, "SN-OTHER")
    assert document["phase"] == "active"
    serials = [item["serial"] for item in (await posd.call("GET", "/terminals?check=true")).json["terminals"]]
    assert serials == ["SN-TEST", "SN-OTHER"]

    assert (await reloaded(posd, terminal.toml))["detail"] == "terminals removed: SN-OTHER"
    assert (await charge(posd, "SN-OTHER"))[1]["code"] == "unknown_terminal"
    # only one terminal is left, so a call without a serial is valid
    assert (await charge(posd))[1]["phase"] == "active"
    # Events of an open payment on the removed terminal count, and are shown as before.
    event = body(open_there, "APPROVAL", "APPROVAL_REQUESTED", "SN-OTHER")
    assert await deliver(other.requests[0].callback, event, posd.ca) == 200
    assert (await posd.outcome(open_there))["result"] == "approved"
    assert other.starts_of(open_there) == 1


async def test_a_changed_serial_starts_no_second_payment_on_a_device(posd: Daemon, terminal: ScriptedTerminal) -> None:
    """An operator writes the right serial of the device at the same address, while a payment of the old serial runs."""
    identity, document = await charge(posd)
    assert document["phase"] == "active"
    await reloaded(posd, terminal.toml.replace('"SN-TEST"', '"SN-NEW"'))
    posd.config, terminal.serial = posd.config_file.read_text(), "SN-NEW"
    for _ in range(2):
        _, refused = await charge(posd)
        assert (refused["http"], refused["code"]) == (409, "terminal_busy")
        assert refused["blocking_transaction"] == identity
        assert len(terminal.requests) == 1
        await posd.restart()
    for status, previous in (("APPROVAL_REQUESTED", "TERMINAL_ACKNOWLEDGED"), ("APPROVAL", "APPROVAL_REQUESTED")):
        event = body(identity, status, previous, "SN-NEW")
        assert await deliver(terminal.requests[0].callback, event, posd.ca) == 200
    after = await posd.transaction(identity)
    assert (after["outcome"]["result"], after["terminal"]) == ("approved", "SN-TEST")
    assert "serial_mismatch" in {item["code"] for item in after["attention"]}
    assert (await charge(posd))[1]["phase"] == "active"


async def test_a_released_payment_does_not_hold_a_removed_terminal(posd: Daemon, terminal: ScriptedTerminal) -> None:
    identity, _ = await charge(posd)
    await reloaded(posd, terminal.toml.replace('"SN-TEST"', '"SN-NEW"'))
    terminal.serial = "SN-NEW"
    person = {"operator": "Ana", "note": "the slip is printed"}
    reply = await posd.call("POST", f"/transactions/{identity}/release", person, socket=posd.admin_socket)
    assert reply.status == 200
    assert (await charge(posd))[1]["phase"] == "active"


async def test_a_print_job_is_polled_again_after_its_terminal_returned_to_the_fleet(
    home: Path, terminal: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    """The daemon started while the terminal was not in the configuration."""
    async with running(home, terminal.toml + other.toml, EAGER) as posd:
        job = await Job(posd, other, f"job-{uuid4()}").started(terminal="SN-OTHER")
        await posd.kill()
        posd.config = toml(home, terminal.toml, EAGER).replace("127.0.0.1:0", f"127.0.0.1:{posd.port}")
        await posd.start()
        other.print_poll = knowing(job, status="COMPLETED")
        await reloaded(posd, terminal.toml + other.toml, EAGER)
        assert (await job.outcome())["decided_by"] == "poll"


async def test_a_call_to_a_terminal_that_a_reload_removes_gets_its_reply(
    posd: Daemon, terminal: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    await reloaded(posd, terminal.toml + other.toml)
    script = Held(other.acknowledge)
    other.start = script
    calling = asyncio.create_task(charge(posd, "SN-OTHER"))
    await script.arrived.wait()
    await reloaded(posd, terminal.toml)
    script.release.set()
    _, document = await calling
    assert (document["http"], document["phase"], document["status"]) == (201, "active", "TERMINAL_ACKNOWLEDGED")


async def test_a_reload_changes_the_requests(home: Path, terminal: ScriptedTerminal, other: ScriptedTerminal) -> None:
    (home / "token").write_text("first\n")
    with_token = f'headers = {{X-Token = {{file = "{home}/token"}}}}\n'
    async with running(home, terminal.toml + with_token) as posd:
        first, _ = await charge(posd)
        assert terminal.requests[0].headers["x-token"] == "first"
        await canceled(posd, terminal, first)

        (home / "token").write_text("second\n")  # only the referenced file changes, not the configuration
        path = '[profile.charge]\npath = "/v2/charge"\n'
        moved = other.toml.replace("SN-OTHER", "SN-TEST").replace("SN-TEST.ca", "SN-OTHER.ca") + with_token
        line = await reloaded(posd, moved, path)
        assert line["detail"] == "terminals changed: SN-TEST; the profile"
        other.serial = "SN-TEST"
        _, document = await charge(posd)
        assert document["phase"] == "active"
        assert (other.requests[0].path, other.requests[0].headers["x-token"]) == ("/v2/charge", "second")
        assert len(terminal.requests) == 1


async def test_a_reload_changes_the_log_level(posd: Daemon, terminal: ScriptedTerminal) -> None:
    quiet = '[logging]\nlevel = "warning"\n[reconcile]\nsettle_seconds = 77\n'
    lines = len(posd.lines)
    await reloaded(posd, terminal.toml, quiet, event="config.needs_restart")
    first, _ = await charge(posd)
    await canceled(posd, terminal, first)
    await reloaded(posd, terminal.toml)
    found = [line["event"] for line in posd.lines[lines:] if line["level"] == "info"]
    assert set(found) <= {"config.loaded", "certificate.loaded"}, found  # the second reload wrote these lines
    second, _ = await charge(posd)
    await posd.log_line("payment.started", transaction=second)


WRONG = {
    "toml": ("[[terminals", "is not valid TOML"),
    "key": ('[[terminals]]\nserial = "SN-TEST"\nbase_urll = "x"\n', "base_urll"),
    "file": ('[[terminals]]\nserial = "SN-TEST"\nbase_url = "https://127.0.0.1:1"\nca_file = "/none"\n', "/none"),
    "ca": ('[[terminals]]\nserial = "SN-TEST"\nbase_url = "https://127.0.0.1:1"\nca_file = "config.toml"\n', "CA file"),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", WRONG)
async def test_a_wrong_configuration_is_refused_and_the_old_configuration_stays(
    posd: Daemon, terminal: ScriptedTerminal, case: str
) -> None:
    terminals, words = WRONG[case]
    lines = len(posd.lines)
    line = await reloaded(posd, terminals, event="config.refused")
    assert line["level"] == "error"
    assert words in line["error"]
    assert "posd config check" in line["detail"]
    # posd checks the certificate also if the configuration is wrong
    await posd.log_line("certificate.loaded", after=lines)
    assert (await charge(posd, "SN-TEST"))[1]["phase"] == "active"
    assert len(terminal.requests) == 1


async def test_a_new_database_path_does_not_change_the_certificate(posd: Daemon, terminal: ScriptedTerminal) -> None:
    """A change of `database.path` needs a restart. Before the restart posd does not use the CA beside the new path."""
    identity, _ = await charge(posd)
    issue.init(posd.directory / "other" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    text = posd.config_file.read_text().replace("/state/posd.db", "/other/posd.db")
    lines = len(posd.lines)
    await sent(posd, text, "config.needs_restart")
    await posd.log_line("certificate.loaded", after=lines)
    await canceled(posd, terminal, identity)  # the payment's terminal trusts only the first CA


async def test_a_refused_configuration_is_shown_until_a_good_one_is_loaded(
    posd: Daemon, terminal: ScriptedTerminal
) -> None:
    async def shown() -> tuple[dict[str, str], bool]:
        health = (await posd.call("GET", "/health")).json["checks"]["configuration"]
        metrics = await posd.metrics()
        return health, "\nposd_config_refused 1\n" in metrics

    assert (await shown())[0]["status"] == "ok"
    await reloaded(posd, terminal.toml, '[webhooks]\nlisten = 7\n[logging]\nlevle = "info"\n', event="config.refused")
    text = posd.config_file.read_text().replace("[webhooks]\nlisten = 7\n", "")
    line = text.split("\n").index('levle = "info"') + 1
    await sent(posd, text, "config.refused")
    check, refused = await shown()
    assert (check["status"], check["reason"], refused) == ("degraded", "refused", True)
    assert f"{posd.config_file}:{line}: logging.levle is not a known key" in check["detail"]
    assert check["todo"] == (
        "did you mean level? Otherwise remove it; then: posd config check && sudo systemctl reload posd"
    )
    await reloaded(posd, terminal.toml, "[reconcile]\nsettle_seconds = 77\n", event="config.needs_restart")
    check, refused = await shown()
    assert (check["status"], refused) == ("ok", False)
    assert "reconcile.settle_seconds needs a restart" in check["detail"]


async def test_the_service_manager_is_notified_of_a_reload(home: Path, terminal: ScriptedTerminal) -> None:
    issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    with manager(home) as heard:
        posd = Daemon(home, toml(home, terminal.toml), heard.environment)
        await posd.start()
        await heard.heard_of("READY")
        for text, event in ((posd.config, "config.loaded"), ("[", "config.refused")):
            await sent(posd, text, event)
            assert int((await heard.heard_of("RELOADING"))["MONOTONIC_USEC"]) > 0
            assert "listening on" in (await heard.heard_of("READY"))["STATUS"]
        assert await posd.stop() == 0


# Tests of a start with a mistake in the configuration.


async def test_a_start_with_a_mistake_uses_the_last_valid_configuration(
    home: Path, terminal: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    state = {"STATE_DIRECTORY": str(home / "state")}
    async with running(home, terminal.toml, environment=state) as posd:
        both = posd.config + other.toml
        await sent(posd, both, "config.loaded")
        posd.config = f"{both}\n[nonsense]\n"
        await sent(posd, posd.config, "config.refused")
        for _ in range(2):
            await posd.restart()
            assert [line["level"] for line in posd.lines if line["event"] == "config.refused"] == ["error"]
            known = (await posd.call("GET", "/terminals")).json["terminals"]
            assert [item["serial"] for item in known] == ["SN-TEST", "SN-OTHER"]
            check = (await posd.call("GET", "/health")).json["checks"]["configuration"]
            assert (check["status"], "nonsense" in check["detail"]) == ("degraded", True)
        assert [path.stat().st_mode & 0o777 for path in (home / "state").glob("config.last*")] == [0o600]
        await sent(posd, both, "config.loaded")
        assert (await posd.call("GET", "/health")).json["checks"]["configuration"]["status"] == "ok"


@pytest.mark.parametrize("case", ["removed on purpose", "another file", "by hand", "damaged"])
async def test_the_last_valid_configuration_is_used_only_by_a_service_with_the_same_file(
    home: Path, terminal: ScriptedTerminal, case: str
) -> None:
    state = {"STATE_DIRECTORY": str(home / "state")}
    async with running(home, terminal.toml, environment=state) as posd:
        await posd.stop()
        posd.config = "[nonsense]\n"
        place = posd.config_file
        match case:
            case "removed on purpose":
                place.unlink()
            case "another file":
                place = home / "other.toml"
            case "by hand":
                state = {}
            case "damaged":
                (home / "state" / "config.last").write_bytes(b"{")
        if case != "removed on purpose":
            place.write_text(posd.config)
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "posd", "--config", str(place), "run"),
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | state,
        )
        assert (await asyncio.wait_for(done.communicate(), 60))[1]
        assert done.returncode == 2
