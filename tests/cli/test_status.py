"""`posd status`. The first line is the result. Each line about a fault names the next command."""

import os
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from posd.base.files import user_name
from posd.base.problems import RemedyStep, remedy
from posd.base.times import iso
from posd.cli.app import times
from posd.cli.operate.status import StatusLine, headline, lines, typed
from tests.rig.commands import asked, posd
from tests.rig.documents import ANSWERS, AT, ID, OTHER_ID, answer, transaction
from tests.rig.tables import every

#: The API's example of a refused change of the configuration.
REFUSED: dict[str, Any] = ANSWERS["get_status"]["200"]


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


Change = Callable[[dict[str, Any]], object]


def check_of(name: str, status: str, detail: str, *steps: tuple[str, str | None]) -> Change:
    """Return a function that sets the result of a check."""

    def change(document: dict[str, Any]) -> None:
        commands = [{"does": does, "command": command} for does, command in steps]
        todo = remedy(RemedyStep(*step) for step in steps)
        document["health"]["checks"][name] |= {"status": status, "detail": detail, "todo": todo, "commands": commands}
        document["health"]["status"] = status

    return change


def terminal(**fields: Any) -> Change:
    """Return a function that replaces fields of the terminal."""
    return lambda document: document["terminals"][0].update(fields)


def counters(**fields: int) -> Change:
    """Return a function that sets counters."""
    return lambda document: document["counters"].update(fields)


NONE_OPEN = answer({"transactions": [], "next_cursor": None})
CLOCK, NONE_MADE = ("clock", "degraded", "it jumped. Payments go on"), "PAYMENTS CANNOT BE MADE"
CONFLICT = {"proof": "ca", "conflict": True, "claims": []}
TIMEDATECTL, BACKUP = "sudo timedatectl set-time", "sudo systemctl start posd-backup"
RESTART = "sudo systemctl restart posd"
PIN = "posd terminals pin SN-0001"


@every(
    ("change", "words", "todo"),
    [
        (check_of(*CLOCK, ("set it", TIMEDATECTL), ("", "x")), "not well: clock", f"set it: {TIMEDATECTL}; x"),
        (check_of("storage", "failing", "full", ("free it", None)), f"{NONE_MADE}: storage", "free it; posd doctor"),
        (terminal(reachable=False, reason="no answer"), "not well: terminal SN-0001", "no answer; posd doctor"),
        (terminal(reachable=False, reason=f"pin it: {PIN}"), "not well: terminal SN-0001", f"pin it: {PIN}; {PIN}"),
        (terminal(identity=CONFLICT), "not well: terminal SN-0001", "posd terminals identity SN-0001"),
        (lambda found: found["terminals"].clear(), "not well: terminals", "[[terminals]]"),
        (counters(open_payments=2, in_doubt=1), "not well: payments in doubt", "posd list --phase in_doubt"),
        (
            lambda found: found["configuration"].update(refused=REFUSED["configuration"]["refused"]),
            "not well: configuration",
            "posd config check && sudo systemctl reload posd",
        ),
        (counters(attention=2), "not well: attention", "posd list --attention"),
        (counters(print_attention=1), "not well: print attention", "posd list --print-jobs --attention"),
        (lambda found: found.update(backup_at="2026-11-17T03:00:00.000Z"), "not well: backup", BACKUP),
        (lambda found: found.update(backup_at=None, uptime_seconds=200_000.0), "not well: backup", BACKUP),
    ],
)
def test_the_first_line_has_the_fault_and_the_next_command(change: Change, words: str, todo: str) -> None:
    document = well()
    change(document)
    found = list(lines(document, []))
    (wrong,) = (line for line in found if line.wrong)
    assert headline(document, found) == f"posd: {words}"
    assert todo in remedy(wrong.steps)


@every(
    ("failing", "words"),
    [
        (("storage", "certificate", "local_api"), NONE_MADE),
        (("local_api", "webhook_listener"), "TILLS CANNOT CONNECT"),
        (("webhook_listener",), "OUTCOMES MAY ARRIVE LATE"),
        (("certificate",), "OUTCOMES MAY ARRIVE LATE"),
        (("identity",), "not well"),  # only a newer posd can report a failing `identity`
    ],
)
def test_the_first_line_says_what_does_not_work(failing: Sequence[str], words: str) -> None:
    """Only a failing database refuses payments. With an expired certificate, payments are approved."""
    document = well()
    for name in failing:
        check_of(name, "failing", "it is wrong", ("", "posd doctor"))(document)
    assert headline(document, list(lines(document, []))).startswith(f"posd: {words}: ")


def test_causes_come_first_and_then_faults_that_block_payments() -> None:
    document = well()
    failing = {"webhook_listener": False, "certificate": True, "clock": False, "storage": True}
    for name, fails in failing.items():
        check_of(name, "failing" if fails else "degraded", "it is wrong", ("", "posd doctor"))(document)
    causes = "storage, clock, certificate, webhook listener"
    assert headline(document, list(lines(document, []))) == f"posd: {NONE_MADE}: {causes}"


@every(("search", "person"), [(None, False), ("found", False), ("none", True), ("no_answer", True)])
def test_a_payment_without_a_reply_of_its_terminal_names_the_command_for_a_person(
    search: str | None, person: bool
) -> None:
    found = transaction(last_search=search and {"at": AT, "result": search})
    (line,) = (line for line in lines(well(), [found]) if "SN-0001  charge" in line.text)
    results = "approved, declined, rejected, canceled, not_started"
    resolve = f"; when you know how it ended ({results}): posd resolve {ID} RESULT" if person else ""
    assert remedy(line.steps) == f"posd reconcile {ID}{resolve}"


def test_an_untrusted_clock_is_shown_with_its_year() -> None:
    """The year of the clock may be the only error."""
    now = time.strftime("%Y")
    document = well()
    said = f"the clock says {now}-06-15 12:00:00 UTC, and that is wrong. Payments go on"
    check_of("clock", "degraded", said)(document)
    document["clock"] = document["health"]["checks"]["clock"]
    document["started_at"] = document["configuration"]["loaded_at"] = f"{now}-06-15T11:00:00.000Z"
    found = {line.label: line for line in lines(document, [])}
    assert [label for label, line in found.items() if line.wrong] == ["clock"]
    for label in ("clock", "uptime", "configuration"):
        assert f" Jun {now} " in found[label].text


@every(
    ("change", "label", "command"),
    [
        (terminal(commissioned=None, commission_lapsed={"at": AT}), "  SN-0001", "posd terminals commission SN-0001"),
        (lambda found: found["configuration"].update(needs_restart=["x"]), "configuration", RESTART),
    ],
)
def test_a_remark_names_a_command_and_does_not_count_as_a_fault(change: Change, label: str, command: str) -> None:
    document = well(4)
    assert not any(line.steps or line.wrong for line in lines(document, [])), "a good status needs nothing"
    change(document)
    found = list(lines(document, []))
    (line,) = (line for line in found if line.steps)
    assert (line.label, line.wrong, remedy(line.steps)) == (label, False, command)
    assert headline(document, found) == "posd: all is well"


def test_an_open_payment_of_last_week_is_shown_with_its_age_and_a_command() -> None:
    at = iso(datetime.now(UTC) - timedelta(days=7, hours=1))
    old = transaction(phase="active", status="TERMINAL_ACKNOWLEDGED", next_step="ask_person", created_at=at)
    document = well()
    counters(open_payments=1)(document)
    steps = [("", f"posd reconcile {each}") for each in (ID, OTHER_ID)]
    check_of("webhook_listener", "degraded", "it was away", *steps)(document)
    seen = asked([answer(document), answer({"transactions": [old]})], "status")
    assert seen.stdout.startswith("posd: not well: webhook listener, open payments\n")
    assert f"\n                 > posd reconcile {ID}\n                 > posd reconcile {OTHER_ID}\n" in seen.stdout
    assert (
        f"! open payments  1\n!                {ID[:8]}  SN-0001  charge  11.20  no outcome  started 7 days ago  "
        f"needs a person\n                 > posd reconcile {ID}\n"
    ) in seen.stdout


def test_four_terminals_fit_a_screen_and_are_clear_without_colours() -> None:
    document = well(4)
    terminal(reachable=False, reason="no answer")(document)
    document["terminals"][3]["serial"] = long = "N950S-UIO-MALL-EL-JARDIN-LOCAL-0042"
    counters(attention=1, open_payments=4)(document)
    opened = {"transactions": [transaction(phase="active", next_step="wait")] * 4}
    script = [answer(document), answer(opened)]
    seen = asked(script, "status", types="")
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
    wide = asked(script, "status", types="", columns=200).screen.splitlines()
    assert [line[:43] for line in wide if "yes" in line][-1] == f"    {long} yes"
    piped = asked(script, "status")
    assert "\x1b" not in piped.stdout
    assert f"    {long} yes " in piped.stdout


SYSTEMCTL = """#!/bin/sh
printf 'LoadState=loaded\\nActiveState=failed\\nSubState=failed\\nResult=exit-code\\n'
printf 'StatusText=cannot start: /etc/posd/config.toml:3: x is not a known key\\n'
"""


def test_the_state_of_systemd_and_the_configuration_are_shown_if_posd_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemctl").write_text(SYSTEMCTL)
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config = tmp_path / "config.toml"
    config.write_text("[logging]\nlevle = 1\n")
    words = (
        "posd: DOES NOT RUN\n! socket         /run/posd/till.sock: ",
        "! service        failed (failed), result exit-code\n                 > sudo systemctl start posd\n",
        "  it says        cannot start: /etc/posd/config.toml:3: x is not a known key\n",
        f"! configuration  {config}:2: logging.levle is not a known key\n                 > did you mean level?",
    )
    posd("status", config=config).ends(3, *words)
    document = posd("status", "--json", config=config).document
    assert (document["running"], document["service"]["Result"]) == (False, "exit-code")
    assert [(item["line"], item["key"]) for item in document["configuration"]["errors"]] == [(2, "logging.levle")]


def test_an_expired_certificate_of_the_shop_is_shown_if_posd_does_not_run(tmp_path: Path) -> None:
    """posd does not start with an expired certificate of the shop. posd's own certificate is renewed at the start."""
    config, now = tmp_path / "config.toml", datetime.now(UTC)
    authority = trustme.CA()
    for ends, words in ((now - timedelta(days=1), "! certificate    Expired on "), (now + timedelta(days=9), "")):
        pair = authority.issue_cert("127.0.0.1", not_before=now - timedelta(days=3), not_after=ends)
        pair.cert_chain_pems[0].write_to_path(tmp_path / "s.crt")
        pair.private_key_pem.write_to_path(tmp_path / "s.key")
        config.write_text(f'[webhooks]\ncertificate = "{tmp_path}/s.crt"\nprivate_key = "{tmp_path}/s.key"\n')
        done = posd("status", config=config).ends(3, "posd: DOES NOT RUN", words)
        assert words or "! certificate" not in done.stdout


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
