"""packaging/nats/lanes: files that the command writes, keeps and refuses."""

import os
import stat
from pathlib import Path

import pytest

from posd.config.schema import SUBJECT_PART
from tests.relay.office import LANES, SETTINGS, lanes, made


def users(output: Path) -> dict[str, str]:
    return dict(line.split('"')[1::2][:2] for line in (output / "users.conf").read_text().splitlines()[2:-1])


def files(output: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}


def test_a_second_run_keeps_existing_lanes_and_adds_new_lanes(tmp_path: Path) -> None:
    first = files(made(tmp_path, *SETTINGS, "--server-version", "2.10.27", "m1.b", "m1.a"))
    before = users(tmp_path)
    assert list(before) == ["m1.a", "m1.b"]
    assert files(made(tmp_path, "--server-version", "2.10.27", "m1.a")) == first
    made(tmp_path, "--server-version", "2.10.27", "--from", "-", text="# new\nm2.c\n\nm1.a\n")
    after = users(tmp_path)
    assert list(after) == ["m1.a", "m1.b", "m2.c"]
    assert before.items() < after.items()
    assert {path: text for path, text in files(tmp_path).items() if path in first and path.name != "users.conf"} == {
        path: text for path, text in first.items() if path.name != "users.conf"
    }


def test_the_next_run_restores_the_modes_of_the_servers_files(tmp_path: Path) -> None:
    made(tmp_path, *SETTINGS, "--server-version", "2.10.27", "m1.a")
    (tmp_path / "users.conf").chmod(0o600)
    made(tmp_path, "--server-version", "2.10.27")
    assert stat.S_IMODE((tmp_path / "users.conf").stat().st_mode) == 0o640


def test_the_next_run_may_be_in_another_directory(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    given = os.path.relpath(tmp_path / "ca.pem")
    made(tmp_path, *SETTINGS, "--server-version", "2.10.27", "--ca-file", given, "m1.a")
    assert (tmp_path / "lanes/m1.a/relay-ca.pem").read_bytes() == (tmp_path / "ca.pem").read_bytes()
    assert f'"ca_file": "{tmp_path}/ca.pem"' in (tmp_path / "settings.json").read_text()


def test_a_lane_is_removed_on_request_and_gets_a_new_password_when_it_returns(tmp_path: Path) -> None:
    before = users(made(tmp_path, *SETTINGS, "--server-version", "2.10.27", "m1.a", "m1.b"))
    made(tmp_path, "--server-version", "2.10.27", "--remove", "m1.a")
    assert users(tmp_path) == {"m1.b": before["m1.b"]}
    assert [path.name for path in (tmp_path / "lanes").iterdir()] == ["m1.b"]
    made(tmp_path, "--server-version", "2.10.27", "m1.a")
    assert users(tmp_path)["m1.a"] != before["m1.a"]


def test_passwords_are_in_private_files_and_the_server_has_only_hashes(tmp_path: Path) -> None:
    made(tmp_path, *SETTINGS, "--server-version", "2.10.27", "m1.a")
    secrets = [tmp_path / "admin.password", tmp_path / "collect.password", tmp_path / "lanes/m1.a/relay.password"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    words = {path.read_text().strip() for path in secrets}
    assert len(words) == 3
    for path in set(files(tmp_path)) - set(secrets):
        assert not any(word in path.read_text() for word in words), path


@pytest.mark.parametrize(("version", "synced"), [("2.9.10", False), ("2.10.0", True), ("nats-server: v2.14.5", True)])
def test_the_server_syncs_each_message_if_its_version_can(version: str, synced: bool, tmp_path: Path) -> None:
    made(tmp_path, *SETTINGS, "--server-version", version)
    assert ("sync_interval: always" in (tmp_path / "nats.conf").read_text()) is synced


WRONG = {
    "a lane of one part": (("quito-1",), "'quito-1' is not a lane: write MERCHANT.LANE"),
    "a lane of three parts": (("m1.a.b",), "'m1.a.b' is not a lane"),
    "a lane with a wildcard": (("m1.*",), "'m1.*' is not a lane"),
    "a lane with a quotation mark": (('m1.a" }',), "is not a lane"),
    "too long a name": ((f"m1.{65 * 'a'}",), "at most 64"),
    "an unknown lane to remove": (("--remove", "m1.x"), "cannot remove m1.x: not among the 1 lanes"),
    "another scheme": (("--server", "nats://x:4222"), "'nats://x:4222' is not of the form tls://HOST:PORT"),
    "a wildcard for a stream": (("--stream", ">"), "'>' is not a name"),
    "a relative path": (("--certificate", "x.pem"), "--certificate x.pem is relative"),
    "no such file": (("--from", "/nowhere"), "No such file or directory: '/nowhere'"),
    "no certificate": (("--ca-file", "/etc/hostname"), "has no certificate in PEM"),
    "an invalid version": (("--server-version", "new"), "'new' is not a version"),
}


def test_a_fault_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    done = lanes(tmp_path, "--server", "tls://x:4222", "m1.a")
    assert (done.returncode, done.stderr) == (1, "lanes: the first run needs --certificate, --private-key too\n")
    before = files(made(tmp_path, *SETTINGS, "--server-version", "2.10.27", "m1.a"))
    for name, (arguments, words) in WRONG.items():
        done = lanes(tmp_path, "--server-version", "2.10.27", *arguments)
        assert done.returncode == 1, name
        assert words in done.stderr, name
        assert files(tmp_path) == before, name


def test_a_file_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    made(tmp_path, *SETTINGS, "--server-version", "2.10.27", "m1.a")
    text = (tmp_path / "users.conf").read_text().replace("users: [", "users: [\n{ user: me, password: mine }")
    (tmp_path / "users.conf").write_text(text)
    done = lanes(tmp_path, "--server-version", "2.10.27", "m1.b")
    assert (done.returncode, "users.conf, line 3 is not as this command writes it" in done.stderr) == (1, True)
    assert (tmp_path / "users.conf").read_text() == text


def test_the_command_accepts_the_same_names_as_the_relay() -> None:
    assert f'WORD = re.compile(r"{SUBJECT_PART}")' in LANES.read_text()
