"""`posd status`. The first line is the result. Each line about a fault names the next command."""

import json
import os
import time
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from posd.base.files import user_name
from posd.base.problems import RemedyStep, remedy
from posd.base.times import iso
from posd.cli.app import times
from posd.cli.operate.status import StatusLine, headline, lines, typed
from tests.cli.documents import ID, OTHER_ID, answer, transaction
from tests.cli.processes import asked, asked_on_terminal, posd
from tests.support.tables import every

ROOT = Path(__file__).parents[2]
#: The API's example of a refused change of the configuration.
REFUSED: dict[str, Any] = json.loads((ROOT / "posd/api/examples.json").read_text())["answers"]["get_status"]["200"]


def well(terminals: int = 1) -> dict[str, Any]:
    """Return a status without faults."""
    found = deepcopy(REFUSED)
    found["configuration"]["refused"] = None
    found["health"]["status"] = "ok"
    for check in found["health"]["checks"].values():
        check["status"] = "ok"
    (one,) = found["terminals"]
    found["terminals"] = [one | {"serial": f"SN-000{number}"} for number in range(1, terminals + 1)]
    return found


def check(name: str, status: str, detail: str, *steps: tuple[str, str | None]) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets the result of a check."""

    def change(document: dict[str, Any]) -> None:
        commands = [{"does": does, "command": command} for does, command in steps]
        todo = remedy(RemedyStep(*step) for step in steps)
        document["health"]["checks"][name] |= {"status": status, "detail": detail, "todo": todo, "commands": commands}
        document["health"]["status"] = status

    return change


def terminal(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that replaces fields of the terminal."""
    return lambda document: document["terminals"][0].update(fields)


def counters(**fields: int) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets counters."""
    return lambda document: document["counters"].update(fields)


NONE_OPEN = answer({"transactions": [], "next_cursor": None})
CONFLICT = {"proof": "ca", "conflict": True, "claims": []}
#: Fault -> the first line, and the advice.
WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str, str]] = {
    "clock": (
        check("clock", "degraded", "it jumped. Payments go on", ("set it", "sudo timedatectl set-time"), ("", "x")),
        "not well: clock",
        "set it: sudo timedatectl set-time; x",
    ),
    "storage": (
        check("storage", "failing", "the disk is full", ("free the disk", None)),
        "PAYMENTS CANNOT BE MADE: storage",
        "free the disk; posd doctor",
    ),
    "certificate": (
        check("certificate", "degraded", "it ends in 3 days", ("renew it", "posd tls renew")),
        "not well: certificate",
        "renew it: posd tls renew",
    ),
    "silent": (
        terminal(reachable=False, reason="no answer"),
        "not well: terminal SN-0001",
        "no answer: posd doctor",
    ),
    "two devices": (terminal(identity=CONFLICT), "not well: terminal SN-0001", "posd terminals identity SN-0001"),
    "no terminal": (lambda found: found["terminals"].clear(), "not well: terminals", "[[terminals]]"),
    "attention": (counters(attention=2), "not well: attention", "posd list --attention"),
    "print": (counters(print_attention=1), "not well: print attention", "posd print-jobs --attention"),
    "old backup": (
        lambda found: found.update(backup_at="2026-11-17T03:00:00.000Z"),
        "not well: backup",
        "sudo systemctl start posd-backup",
    ),
    "never a backup": (
        lambda found: found.update(backup_at=None, uptime_seconds=200_000.0),
        "not well: backup",
        "sudo systemctl start posd-backup",
    ),
}


@every("name", WRONG)
def test_the_first_line_has_the_fault_and_the_next_command(name: str) -> None:
    change, words, todo = WRONG[name]
    document = well()
    change(document)
    found = list(lines(document, []))
    (wrong,) = (line for line in found if line.wrong)
    assert headline(document, found) == f"posd: {words}"
    assert todo in remedy(wrong.steps)


def test_causes_come_first_and_then_faults_that_block_payments() -> None:
    document = well()
    for name, status in (
        ("webhook_listener", "degraded"),
        ("certificate", "failing"),
        ("clock", "degraded"),
        ("storage", "failing"),
    ):
        check(name, status, "it is wrong", ("", "posd doctor"))(document)
    assert headline(document, list(lines(document, []))) == (
        "posd: PAYMENTS CANNOT BE MADE: storage, clock, certificate, webhook listener"
    )


@every(
    ("search", "todo"),
    [
        (None, "posd reconcile {id}"),
        ("found", "posd reconcile {id}"),
        ("none", "posd reconcile {id}; when you know how it ended ({results}): posd resolve {id} RESULT"),
        ("no_answer", "posd reconcile {id}; when you know how it ended ({results}): posd resolve {id} RESULT"),
    ],
)
def test_a_payment_without_a_reply_of_its_terminal_names_the_command_for_a_person(
    search: str | None, todo: str
) -> None:
    found = transaction(last_search=search and {"at": "2026-11-20T14:02:11.123Z", "result": search})
    (line,) = (line for line in lines(well(), [found]) if "SN-0001  charge" in line.text)
    assert remedy(line.steps) == todo.format(id=ID, results="approved, declined, rejected, canceled, not_started")


def test_an_untrusted_clock_is_shown_with_its_year() -> None:
    """The year of the clock may be the only error."""
    now = time.strftime("%Y")
    document = well()
    check("clock", "degraded", f"the clock says {now}-06-15 12:00:00 UTC, and that is wrong. Payments go on")(document)
    document["clock"] = document["health"]["checks"]["clock"]
    document["started_at"] = document["configuration"]["loaded_at"] = f"{now}-06-15T11:00:00.000Z"
    found = {line.label: line for line in lines(document, [])}
    assert [label for label, line in found.items() if line.wrong] == ["clock"]
    for label in ("clock", "uptime", "configuration"):
        assert f" Jun {now} " in found[label].text


#: Remark that is no fault -> change of the status, label of the line, and command.
REMARKS: dict[str, tuple[Callable[[dict[str, Any]], Any], str, str]] = {
    "commissioning": (
        terminal(commissioned=None, commission_lapsed={"at": "2026-11-17T03:00:00.000Z"}),
        "  SN-0001",
        "posd terminals commission SN-0001",
    ),
    "restart": (
        lambda found: found["configuration"].update(needs_restart=["webhooks.listen"]),
        "configuration",
        "sudo systemctl restart posd",
    ),
}


@every("name", REMARKS)
def test_a_remark_names_its_command_and_is_no_fault(name: str) -> None:
    change, label, command = REMARKS[name]
    document = well()
    change(document)
    (line,) = (line for line in lines(document, []) if line.steps)
    assert (line.label, line.wrong, remedy(line.steps)) == (label, False, command)


def test_a_good_status_needs_nothing() -> None:
    document = well(4)
    found = list(lines(document, []))
    assert headline(document, found) == "posd: all is well"
    assert not any(line.steps or line.wrong for line in found)


def test_a_payment_in_doubt_is_named() -> None:
    doubtful = transaction(phase="in_doubt")
    document = well()
    counters(open_payments=2, in_doubt=1)(document)
    found = list(lines(document, [transaction(phase="active", next_step="wait"), doubtful]))
    wrong = [line for line in found if line.wrong]
    assert headline(document, found) == "posd: not well: payments in doubt"
    assert [line.label for line in wrong] == ["open payments", ""]
    assert remedy(wrong[1].steps) == f"posd reconcile {doubtful['client_transaction_id']}"
    assert headline(document, list(lines(document, []))) == "posd: not well: payments in doubt"


def test_an_open_payment_of_last_week_is_shown_with_its_age_and_names_its_command() -> None:
    at = iso(datetime.now(UTC) - timedelta(days=7, hours=1))
    old = transaction(phase="active", status="TERMINAL_ACKNOWLEDGED", next_step="ask_person", created_at=at)
    document = well()
    counters(open_payments=1)(document)
    check("webhook_listener", "degraded", "it was away", *(("", f"posd reconcile {each}") for each in (ID, OTHER_ID)))(
        document
    )
    seen = asked([answer(document), answer({"transactions": [old]})], "status")
    assert seen.stdout.startswith("posd: not well: webhook listener, open payments\n")
    assert f"\n                 > posd reconcile {ID}\n                 > posd reconcile {OTHER_ID}\n" in seen.stdout
    assert (
        f"! open payments  1\n!                {ID[:8]}  SN-0001  charge  11.20  no outcome  started 7 days ago  "
        f"needs a person\n                 > posd reconcile {ID}\n"
    ) in seen.stdout


def test_a_refused_configuration_is_shown_with_file_line_and_cure() -> None:
    found = list(lines(REFUSED, []))
    (wrong,) = (line for line in found if line.wrong)
    assert "/etc/posd/config.toml:12: webhooks.lissen is not a known key; did you mean listen?" in wrong.text
    assert remedy(wrong.steps) == "posd config check && sudo systemctl reload posd"


def test_four_terminals_fit_a_screen_and_the_text_says_what_colours_say() -> None:
    document = well(4)
    terminal(reachable=False, reason="no answer")(document)
    document["terminals"][3]["serial"] = long = "N950S-UIO-MALL-EL-JARDIN-LOCAL-0042"
    counters(attention=1, open_payments=4)(document)
    opened = {"transactions": [transaction(phase="active", next_step="wait")] * 4}
    script = [answer(document), answer(opened)]
    seen = asked_on_terminal(script, "status")
    shown, last = seen.screen.splitlines(), document["terminals"][0]["last_payment"]["at"]
    assert (seen.returncode, len(shown) <= 24, seen.fits()) == (1, True, True), seen.screen
    assert shown[0] == "posd: not well: terminal SN-0001, attention"
    times.use(utc=False)  # a command of another test may have used --utc
    assert [line for line in shown if line.startswith("!")] == [
        f"!   SN-0001            NO         ca        2026-11-20    {times.short(last)} active",
        "! attention      1",
    ]
    # A long serial does not move the columns. The screen shows the complete serial if the serial fits.
    assert [line[:26] for line in shown if "yes" in line][-1] == "    N950S-UI…OCAL-0042 yes"
    wide = asked_on_terminal(script, "status", columns=200).screen.splitlines()
    assert [line[:43] for line in wide if "yes" in line][-1] == f"    {long} yes"
    piped = asked(script, "status")
    assert "\x1b" not in piped.stdout
    assert f"    {long} yes " in piped.stdout


SYSTEMCTL = """#!/bin/sh
printf 'LoadState=loaded\\nActiveState=failed\\nSubState=failed\\nResult=exit-code\\n'
printf 'StatusText=cannot start: /etc/posd/config.toml:3: x is not a known key\\n'
"""


def test_if_posd_does_not_run_the_state_of_systemd_and_the_configuration_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemctl").write_text(SYSTEMCTL)
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config = tmp_path / "config.toml"
    config.write_text("[logging]\nlevle = 1\n")
    done = posd("status", config=config)
    assert done.returncode == 3
    assert done.stdout.startswith("posd: DOES NOT RUN\n! socket         /run/posd/till.sock: ")
    for words in (
        "! service        failed (failed), result exit-code\n                 > sudo systemctl start posd\n",
        "  it says        cannot start: /etc/posd/config.toml:3: x is not a known key\n",
        f"! configuration  {config}:2: logging.levle is not a known key\n                 > did you mean level?",
    ):
        assert words in done.stdout, done.stdout
    document = posd("status", "--json", config=config).document
    assert (document["running"], document["service"]["Result"]) == (False, "exit-code")
    assert [(item["line"], item["key"]) for item in document["configuration"]["errors"]] == [(2, "logging.levle")]


@pytest.mark.parametrize(
    ("command", "typed_as"),
    [
        ("posd doctor", "sudo posd doctor"),
        ("sudo posd doctor", "sudo posd doctor"),
        ("posd list --attention", "posd list --attention"),
        ("posd tls renew", "sudo -u {owner} posd tls renew"),
    ],
)
def test_a_user_without_access_to_posds_files_is_told_to_use_sudo(
    command: str, typed_as: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "till.sock"  # the socket is missing, and the owner of posd's directory is posd's user
    given = [StatusLine("disk", "x", steps=[RemedyStep("where it does not", command)])]
    assert typed(given, socket) == given
    other = os.geteuid() + 1000
    monkeypatch.setattr(os, "geteuid", lambda: other)
    owner = user_name(tmp_path.stat().st_uid)
    assert typed(given, socket)[0].steps == [RemedyStep("where it does not", typed_as.format(owner=owner))]
