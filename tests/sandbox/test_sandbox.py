"""The sandbox. The sandbox's processes can be killed, restarted and run beside other sandboxes. Nothing remains of a
sandbox.
"""

import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from posd.client import Problem
from posd.config import load
from posd.sandbox import LEAST_WAIT_SECONDS, WAITS, Sandbox, SandboxFailed
from tests.rig.leftovers import owning_file, processes_naming


@pytest.fixture(scope="module")
def module_sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(module_sandbox: Sandbox) -> Iterator[Sandbox]:
    """Yield a sandbox with a free terminal. Each test file has a sandbox."""
    assert module_sandbox.terminal.state()["payment"] is None
    with owning_file():
        yield module_sandbox


def test_a_chosen_scenario_applies_only_to_the_next_payment(sandbox: Sandbox) -> None:
    sandbox.terminal.choose("decline")
    assert sandbox.client.charge(uuid.uuid4(), "11.20").outcome().status == "DECLINED"
    assert sandbox.client.charge(uuid.uuid4(), "11.20").outcome().status == "APPROVAL"


def test_a_lasting_fault_applies_to_every_payment_until_the_test_ends_the_fault(sandbox: Sandbox) -> None:
    sandbox.terminal.choose("terminal-away")
    for _ in range(2):
        assert sandbox.client.charge(uuid.uuid4(), "11.20").outcome().next_step == "new_id_ok"
    sandbox.terminal.choose(None)
    assert sandbox.client.charge(uuid.uuid4(), "11.20").outcome().next_step == "done"


def test_a_chosen_scenario_applies_to_the_next_print_job(sandbox: Sandbox) -> None:
    sandbox.terminal.choose("print:out-of-paper")
    job = sandbox.client.print_job(str(uuid.uuid4()), {"text": "Thank you"}, external_reference="receipt of a till")
    sandbox.terminal.wait_for("printing", print_job_id=job.id)
    sandbox.terminal.do("paper")
    assert job.outcome().status == "COMPLETED"
    assert sandbox.paper(job.id) == "Thank you"


def test_an_unknown_scenario_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxFailed, match="there is no scenario declined"):
        sandbox.terminal.choose("declined")


def test_a_payment_continues_after_a_kill_of_the_daemon(sandbox: Sandbox) -> None:
    sandbox.terminal.choose("by-hand")
    before = len(sandbox.terminal.ledger("start"))
    payment = sandbox.client.charge(uuid.uuid4(), "11.20")
    sandbox.terminal.wait_for("event", client_transaction_id=payment.id)
    pid = sandbox.pid_path.read_text()
    sandbox.kill_daemon()
    assert processes_naming(sandbox.config_path) == {}
    sandbox.start_daemon()
    assert sandbox.pid_path.read_text() != pid
    sandbox.terminal.do("approve")
    assert payment.outcome().next_step == "done"
    assert len(sandbox.terminal.ledger("start")) == before + 1


def test_a_test_can_wait_for_a_log_line(sandbox: Sandbox) -> None:
    payment = sandbox.client.charge(uuid.uuid4(), "11.20")
    assert sandbox.wait_for_log("payment.outcome", transaction=payment.id)["result"] == "approved"
    with pytest.raises(TimeoutError, match=r"posd has logged no payment\.outcome .* within 0\.1 s") as raised:
        sandbox.wait_for_log("payment.outcome", transaction="another", timeout=0.1)
    assert payment.id in raised.value.__notes__[0]


def test_a_reset_removes_all_records_and_keeps_the_addresses(sandbox: Sandbox) -> None:
    sandbox.terminal.choose("wait-for-abort")
    payment = sandbox.client.charge(uuid.uuid4(), "11.20", sale="1042")
    sandbox.terminal.choose("decline")
    sandbox.terminal.do("unplug")
    before = sandbox.till_socket, sandbox.webhook_address, sandbox.terminal.base_url
    sandbox.renew()
    assert (sandbox.till_socket, sandbox.webhook_address, sandbox.terminal.base_url) == before
    with pytest.raises(Problem) as unknown:
        payment.state()
    assert unknown.value.code == "not_found"
    assert sandbox.terminal.ledger() == []
    assert payment.id not in "".join(sandbox.tails())
    assert sandbox.client.charge(payment.id, "11.20", sale="1042").outcome().next_step == "done"


def test_no_other_program_gets_the_address_of_a_stopped_daemon(sandbox: Sandbox) -> None:
    sandbox.stop_daemon()
    host, port = sandbox.webhook_address.split(":")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((host, int(port)))
    sandbox.start_daemon()


@pytest.mark.parametrize("program", ["posd", "the simulated terminal"])
def test_a_process_that_ends_by_itself_is_reported_with_the_end_of_its_log(program: str) -> None:
    with Sandbox() as sandbox:
        sandbox._programs[program].process.kill()
        with pytest.raises(SandboxFailed, match=f"{program} ended by itself with exit code -9") as raised:
            sandbox.terminal.wait_for("never") if program == "posd" else sandbox.wait_for_log("never")
        assert raised.value.__notes__[0].startswith(f"--- the end of {program}'s log:\n{{")


def test_several_sandboxes_can_run_at_once_and_leave_nothing_behind() -> None:
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        several = list(pool.map(lambda _: stack.enter_context(Sandbox()), range(2)))
        addresses = {address for each in several for address in (each.webhook_address, each.terminal.base_url)}
        assert len(addresses) == 4
        for sandbox in several:
            assert sandbox.client.charge(uuid.uuid4(), "11.20").outcome().next_step == "done"
    for sandbox in several:
        assert not sandbox.directory.exists()
        assert processes_naming(sandbox.directory) == {}


def test_a_sandbox_that_cannot_start_gives_the_reason_and_leaves_nothing_behind() -> None:
    sandbox = Sandbox(serial="X" * 64)
    with pytest.raises(SandboxFailed, match="ended by itself with exit code 2") as raised, sandbox:
        pass
    assert "1 to 63 bytes" in raised.value.__notes__[0]
    assert not sandbox.directory.exists()
    assert processes_naming(sandbox.directory) == {}


def waits_in(config_path: Path) -> dict[str, float]:
    """Return posd's waits in a configuration."""
    config = load(config_path)
    sections = {"reconcile": config.reconcile, "print": config.print_, "terminal_defaults": config.terminals[0]}
    return {name: getattr(sections[section], name) for section, waits in WAITS.items() for name in waits}


def test_posds_waits_are_divided_by_the_speed_of_the_terminal(sandbox: Sandbox, tmp_path: Path) -> None:
    written = sandbox.config_path.read_text().splitlines(keepends=True)
    names = {name for waits in WAITS.values() for name in waits}
    plain = tmp_path / "config.toml"
    plain.write_text("".join(line for line in written if line.partition(" ")[0] not in names))
    assert waits_in(sandbox.config_path) == {
        name: max(LEAST_WAIT_SECONDS, wait / sandbox.speed) for name, wait in waits_in(plain).items()
    }
