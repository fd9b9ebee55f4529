"""`posd support`: the content of the archive, forbidden content, and missing parts."""

import asyncio
import json
import re
import sqlite3
import stat
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.base.redaction import REDACTED
from posd.cli.app.context import Context
from posd.cli.app.private_file import write_private_file
from posd.cli.operate.support import PARTS, Machine, Scrubber, _line
from tests.e2e.conftest import home, terminal  # noqa: F401 - fixtures
from tests.logs.test_secrets import (
    DEBUG,
    MARKS,
    called_wrongly,
    configured,  # noqa: F401 - the import is a fixture
    paid,
    printed,
    troubled,
)
from tests.rig.commands import Done, posd, posd_on_terminal
from tests.rig.daemon import running
from tests.rig.events import APPROVED, body
from tests.rig.https import deliver
from tests.rig.secrets import Secrets
from tests.rig.terminal import ScriptedTerminal

#: Fields of events whose values must not be in the archive.
OF_THE_ACQUIRER = {"transaction_reference", "ticket_number", "authorization_code", "franchise", "card_type", "merchant"}


def members(file: Path) -> dict[str, str]:
    """Return the members of an archive, name -> text."""
    with tarfile.open(file) as archived:
        found = {}
        for member in archived.getmembers():
            content = archived.extractfile(member)
            assert content is not None
            found[member.name.removeprefix("posd-support/")] = content.read().decode()
        return found


def acquirers(database: Path) -> list[str]:
    """Return the values of the acquirer's fields in all events that posd has stored."""
    with closing(sqlite3.connect(database)) as db:
        bodies = b"".join(content for (content,) in db.execute("SELECT body FROM events"))
    return re.findall(rf'"(?:{"|".join(OF_THE_ACQUIRER)})": ?"([^"]+)"', bodies.decode())


@pytest.mark.slow
async def test_the_archive_has_no_secret_and_nothing_of_payments_except_ids(
    home: Path,  # noqa: F811
    terminal: ScriptedTerminal,  # noqa: F811
    configured: str,  # noqa: F811
) -> None:
    file, log = home / "support.tar.gz", home / "posd.log"
    async with running(home, configured, DEBUG) as daemon:
        identity = await paid(daemon, terminal)
        await troubled(daemon, terminal)
        await printed(daemon, terminal)
        await called_wrongly(daemon)
        given = await with_references(daemon, terminal)
        for path, more in (
            (f"/transactions/{identity}/acknowledge", {"code": "conflicting_final"}),
            (f"/terminals/{terminal.serial}/commission", {"proven": ["start"]}),
        ):
            person = {"operator": MARKS["operator"], "note": MARKS["note"]} | more
            assert (await daemon.call("POST", path, person, socket=daemon.admin_socket)).status == 200
        assert any("reference " in line.get("detail", "") for line in daemon.lines), "the log needs a reference"
        lines = [*map(json.dumps, daemon.lines), f"Traceback: {MARKS['fault']}", "posd.service: Succeeded."]
        log.write_text("\n".join(lines))
        done = await asyncio.to_thread(support, file, daemon.config_file, "--log", str(log))
        given += acquirers(daemon.database)
    assert (done.returncode, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600)
    found = members(file)
    assert found.keys() >= {"contents.txt", *PARTS} - {"service.txt"}, found["contents.txt"]

    secrets = Secrets(MARKS)
    secrets.add_key(home / "state" / "callback.key")
    secrets.add_callbacks("callback", (item.callback for item in terminal.requests if item.method == "POST"))
    secrets.add_callbacks("print callback", (item.print_callback for item in terminal.prints))
    for number, value in enumerate(set(given)):
        secrets.values[f"of the acquirer {number}"] = value
    assert len(secrets.values) > len(MARKS) + 12
    assert secrets.found_in([{"member": name, "text": text} for name, text in found.items()]) == []
    assert secrets.found_in([{"text": done.stdout + done.stderr}]) == []

    assert identity in found["log.jsonl"]
    assert '{"systemd":"posd.service: Succeeded."}' in found["log.jsonl"].replace(", ", ",").replace(": {", ":{")
    told = [json.loads(line) for line in found["log.jsonl"].splitlines()]
    assert {"payment.outcome", "payment.attention", "webhook.quarantined"} <= {line.get("event") for line in told}
    assert {finding["check"] for finding in json.loads(found["doctor.json"])} >= {"configuration", "daemon", "database"}
    status = json.loads(found["status.json"])
    assert status["health"]["checks"]["storage"]["status"] == "ok"
    assert [told_of["commissioned"].keys() for told_of in status["terminals"]] == [{"at", "proven"}]
    assert ("posd_health{" in found["metrics.txt"], 'serial = "' in found["config.toml"]) == (True, True)

    support(file, home / "config.toml").ends(2, str(file))
    down(home, log)


async def with_references(daemon: Any, terminal: ScriptedTerminal) -> list[str]:  # noqa: F811
    """Start a payment with all acquirer data in its approval and in a contradicting second approval. Return the
    values.
    """
    identity, mark = str(uuid4()), "acquirer.mark.qx9"
    request = {"amount": {"iva": 1.20, "subtotal_iva": 10.00}, "sale": f"{MARKS['sale']}/2"}
    assert (await daemon.call("PUT", f"/transactions/{identity}", request)).status == 201
    said: dict[str, Any] = {name: f"{mark}.{name}" for name in sorted(OF_THE_ACQUIRER)}
    approval = said | {"message_fields": {"F38": f"{mark}.F38"}}
    for status, previous, raw in (
        *((*event, approval if event[0] == "APPROVAL" else None) for event in APPROVED),
        ("APPROVAL", "APPROVAL_REQUESTED", said | {"transaction_reference": f"{mark}.other"}),
    ):
        content = body(identity, status, previous, **({"raw_response": raw} if raw else {}))
        assert await deliver(terminal.requests[-1].callback, content, daemon.ca) == 200
    return [*said.values(), f"{mark}.F38", f"{mark}.other"]


def down(home: Path, log: Path) -> None:  # noqa: F811
    """Check the archive with a stopped daemon and a broken configuration. The archive has the existing parts and names
    the missing parts.
    """
    config, file = home / "config.toml", home / "second.tar.gz"
    config.write_text(config.read_text() + "\n[broken\n")
    done = support(file, config, "--log", str(log), "--json")
    document, found = done.document, members(file)
    assert (done.returncode, document["missing"].keys() >= {"status.json", "metrics.txt"}) == (0, True)
    assert {"config.toml", "doctor.json", "log.jsonl", "versions.json"} <= document["members"].keys() & found.keys()
    assert "cannot be used" in found["config.toml"]
    assert "status.json: cannot reach posd" in found["contents.txt"]
    assert Secrets(MARKS).found_in([{"member": name, "text": text} for name, text in found.items()]) == []


def support(file: Path, config: Path, *more: str) -> Done:
    """Run the command without a question."""
    return posd("support", str(file), "--yes", *more, config=config)


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("kept")
    (tmp_path / "dangling").symlink_to("nowhere")
    for place in ("there", "dangling", "no/file"):
        assert support(tmp_path / place, tmp_path / "none.toml").returncode == 2
        with pytest.raises(OSError, match=r"exist|No such"):
            write_private_file(tmp_path / place, b"x", replaces=False)
    assert (tmp_path / "there").read_text() == "kept"
    assert {item.name for item in tmp_path.iterdir()} == {"there", "dangling"}


@pytest.mark.parametrize("broken", ["", "\n[broken"])
def test_secrets_are_removed_even_from_a_broken_configuration(tmp_path: Path, broken: str) -> None:
    (tmp_path / "code").write_text("inside-of-file\n")
    config = tmp_path / "config.toml"
    config.write_text(
        '[terminal_defaults]\nbusiness_code = "the-business-code"\nheaders = {X-A = "value \\"a\\" here"}\n'
        '[collect]\ndsn = "postgresql://u:p@h/d"\n'
        f'[[terminals]]\nserial = "SN-0001"\n[terminals.headers]\nX-B = {{file = "code"}}\nX-C = "of a table"\n{broken}'
    )
    scrub = Scrubber(Machine(Context(str(config), str(tmp_path / "none")), None, "posd"))
    secrets = ["the-business-code", "postgresql://u:p@h/d", "of a table"]
    for secret in [*secrets, *([] if broken else ['value "a" here', "inside-of-file"])]:
        assert scrub(f"<{secret}>") == f"<{REDACTED}>"
        assert secret not in scrub(json.dumps([secret]))
    assert scrub("SN-0001 https://me:word@10.0.0.1/x") == f"SN-0001 https://{REDACTED}@10.0.0.1/x"
    assert scrub("/webhooks/transactions/ID/c2VjcmV0 ok") == f"/webhooks/transactions/ID/{REDACTED} ok"


def test_only_posds_own_log_lines_are_kept() -> None:
    line = {"event": "payment.attention", "level": "warning", "code": "gap", "detail": "x", "metadata": "y"}
    assert _line(json.dumps(line).encode()) == {"event": "payment.attention", "level": "warning", "code": "gap"}
    assert _line(b"posd.service: Main process exited, code=killed") is not None
    for other in (b"Traceback (most recent call last):", b'{"event": "of.another"}', b"[1, 2]"):
        assert _line(other) is None


@pytest.mark.slow
def test_a_person_sees_the_content_and_can_refuse(tmp_path: Path) -> None:
    seen = posd_on_terminal("support", str(tmp_path / "s.tar.gz"), socket=tmp_path / "none", types="n\n")
    words = ("In the archive:", "versions.json", "Could not be collected:", "Not in it: tokens", "Nothing was written.")
    seen.ends(1, *words)
    assert not (tmp_path / "s.tar.gz").exists()
