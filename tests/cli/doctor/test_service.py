"""The effect of posd's unit: the user, hidden paths, restrictions, and passed credentials."""

from pathlib import Path

import pytest

from posd.cli.doctor import service
from tests.cli.doctor.healthy import Found, SetUp, failures

UNIT = """
# a comment
[Unit]
Description=posd
[Service]
ExecStart=/usr/bin/posd --config {file} run
User={user}
StateDirectory=posd \\
    posd/backups
ProtectSystem={protect}
ReadWritePaths=/
ProtectHome=yes
LoadCredential=other:/nonexistent
"""


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the system's unit directories. Return the first directory. A later directory overrides the first
    directory.
    """
    places = tmp_path / "lib", tmp_path / "etc"
    for place in places:
        (place / f"{service.UNIT}.d").mkdir(parents=True)
    monkeypatch.setattr(service, "DIRECTORIES", tuple(map(str, places)))
    return places[0]


def write(units: Path, file: Path, *, user: str = "root", protect: str = "no") -> None:
    (units / service.UNIT).write_text(UNIT.format(file=file, user=user, protect=protect))


def drop_in(units: Path, name: str, text: str) -> None:
    (units / f"{service.UNIT}.d" / name).write_text(f"[Service]\n{text}\n")


def test_a_unit_is_read_with_its_drop_ins(units: Path) -> None:
    file = Path("/x/config.toml")
    assert service.read(file) is None
    write(units, file, protect="strict")
    drop_in(units, "20.conf", "ReadWritePaths=\nReadWritePaths=/srv/posd\nSupplementaryGroups=a")
    drop_in(units, "10.conf", "SupplementaryGroups=b")
    drop_in(units.parent / "etc", "10.conf", "SupplementaryGroups=c")
    found = service.read(file)
    assert found is not None
    assert found.words("SupplementaryGroups") == ["c", "a"], "the file of this name in the later directory counts"
    assert found.made == [Path("/var/lib/posd"), Path("/var/lib/posd/backups")]
    for path, read_only in (("/srv/posd/posd.db", False), ("/var/lib/posd/x", False), ("/srv/other", True)):
        assert found.read_only(Path(path)) == read_only, path
    for path, hidden in (("/root/ca.crt", True), ("/home/a/b", True), ("/etc/posd/ca.crt", False), ("/tmp/a", False)):
        assert found.hides(Path(path)) == hidden, path
    assert (found.credential("other"), found.credential("none")) == ("/nonexistent", None)
    assert not found.makes_certificate
    assert service.read(Path("/y/config.toml")) is None, "the unit runs another configuration"
    (units.parent / "etc" / service.UNIT).symlink_to("/dev/null")
    assert service.read(file) is None, "the unit is masked"


def refused(setup: SetUp) -> list[Found]:
    found = [one for one in failures(setup.findings()) if one["refused"]]
    assert setup.check() == (2, [(str(setup.file), one["key"]) for one in found])
    return found


def test_files_that_the_unit_hides_from_posd_are_failures(setup: SetUp, units: Path) -> None:
    setup.config += 'headers = {X-Key = {credential = "key"}, X-Other = {credential = "other"}}\n'
    write(units, setup.file)
    drop_in(units, "a.conf", "PrivateTmp=yes\nReadWritePaths=\nProtectSystem=strict")
    found = refused(setup)
    meanings = {one["key"]: one for one in found}
    assert set(meanings) >= {"terminals[0].headers.X-Key", "database.path", "local_api.directory"}
    no_credential = meanings["terminals[0].headers.X-Key"]
    assert "passes no credential key" in no_credential["meaning"]
    assert "LoadCredential=key:/etc/posd/credentials/key" in no_credential["todo"]
    assert no_credential["commands"][0].endswith("systemctl edit posd")
    assert "ProtectSystem=strict" in meanings["database.path"]["meaning"]
    if str(setup.home).startswith("/tmp/"):
        assert "which posd's unit hides from posd" in meanings["terminals[0].ca_file"]["meaning"]


def test_a_socket_passed_by_systemd_must_be_the_configured_one(setup: SetUp, units: Path) -> None:
    write(units, setup.file)
    run = setup.home / "run"
    (units / service.SOCKET_UNIT).write_text("[Socket]\nListenStream=/run/posd/till.sock\n")
    (failed,) = refused(setup)
    assert (failed["check"], failed["subject"]) == ("access", "/run/posd/till.sock")
    assert f"ListenStream={run}/till.sock" in failed["todo"]
    (units / service.SOCKET_UNIT).write_text(f"[Socket]\nListenStream={run}/till.sock\n")
    assert failures(setup.findings()) == []


def test_a_missing_user_is_a_failure_and_a_directory_made_by_systemd_is_not(setup: SetUp, units: Path) -> None:
    write(units, setup.file, user="no-such-user")
    setup.tls.certificate.unlink()
    (units / service.TLS_UNIT).write_text("[Service]\n")
    (failed,) = refused(setup)
    assert (failed["check"], failed["subject"]) == ("access", "no-such-user")
    assert failed["commands"][0].endswith("systemd-sysusers")
