"""The catalogue of words, and `posd explain`. Each code that posd can show has a text, no other code has a text, and
`posd explain` finds typed codes.
"""

import ast
import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import click
import pytest

import posd as package
from posd import cli
from posd.api import certificate
from posd.api.documents import Checks
from posd.base import limits
from posd.base.operations import OperationType
from posd.base.problems import PROBLEMS, StartStep
from posd.base.text import Language
from posd.cli.app.times import short
from posd.cli.doctor.command import CHECKS
from posd.cli.explain.catalogue import chosen, events, read, translate, use
from posd.cli.explain.command import CodeEntry, entries, explain, find, kinds, near
from posd.cli.payments.show import PAYMENT, outcome_pairs, transaction_pairs
from posd.cli.payments.words import (
    attention_advice,
    hint,
    meaning,
    next_step,
    operation,
    refused_step,
    resolving,
    settling,
    state,
    status_hint,
    words_of,
)
from posd.cli.printing import PRINT_JOB, job_pairs
from posd.cli.terminals import command as terminals
from posd.clock.clock import STEPS
from posd.clock.rules import Doubt
from posd.daemon import reload, status
from posd.httpd.messages import RefusalKind
from posd.payments.display import DisplayCode
from posd.payments.lifecycle import Status
from posd.payments.missing_proof import ProofCode
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result
from posd.printing.model import PrintAttentionCode
from posd.records.model import Phase
from posd.terminals.identity import AddressConflict
from tests.cli.test_operator import MAY
from tests.cli.test_status import NONE_OPEN, check_of, well
from tests.rig.command_lines import parse
from tests.rig.command_lines import words_of as words_of_line
from tests.rig.commands import asked, check, posd, posd_process
from tests.rig.documents import ANSWERS, AT, ID, OTHER_ID, answer, attention, outcome, print_job, transaction
from tests.rig.stub import Answer, problem
from tests.rig.tables import every, there

#: Events that the daemon can log.
EVENTS = events()

PACKAGE = Path(package.__file__).parent
ENTRIES = list(entries())
SPANISH = list(entries(Language.ES))


def calls(path: str) -> list[ast.Call]:
    """Return the calls in the files of a folder."""
    trees = [ast.parse(file.read_text("utf-8")) for file in (PACKAGE / path).rglob("*.py")]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def noted(path: str) -> set[str]:
    """Return the literal codes of refused calls that the files of a folder count."""
    nodes = [node for node in calls(path) if re.search(r"noise.*\.note$", ast.unparse(node.func)) and node.args]
    return {node.args[0].value for node in nodes if isinstance(node.args[0], ast.Constant)}


def failures(path: str) -> set[tuple[str, str]]:
    """Return the first two arguments of each `Failure(…)` in the files of a folder, if they are literals."""
    found = set()
    for node in calls(path):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if ast.unparse(node.func) == "Failure" and isinstance(given[1], ast.Constant):
            found.add((ast.unparse(given[0]).strip("'"), given[1].value))
    return found


def terminal_codes() -> set[str]:
    """Return the codes and types of errors that docs/design/terminal-api.md names."""
    page = (PACKAGE.parent / "docs" / "design" / "terminal-api.md").read_text("utf-8")
    section = page.partition("### Refusals")[2].partition("\n## ")[0]
    return {word.replace("…", "") for word in re.findall(r"`([-A-Z0-9_…]+)`", section)}


@functools.cache
def codes() -> dict[str, set[Any]]:
    """Return the existing codes, by kind."""
    return {
        "problem": set(PROBLEMS),
        "attention": set(AttentionCode),
        "print": set(PrintAttentionCode),
        "proof": set(ProofCode),
        "display": set(DisplayCode),
        "next": {*NextStep, *StartStep},
        "result": set(Result),
        "phase": set(Phase),
        "status": set(Status),
        "evidence": set(EvidenceKind),
        "failure": {code for kind, code in failures("payments") if kind == "posd"},
        "terminal": terminal_codes(),
        "simulated": {code for code, _ in failures("simulator")},
        "health": {"ok", "degraded", "failing"},
        "check": set(Checks.__struct_fields__),
        "doctor": set(CHECKS),
        "limit": {limit.name for limit in limits.ALL},
        "refused": noted("httpd") | noted("api") | set(get_args(RefusalKind)),
        "doubt": set(Doubt),
        "event": set(EVENTS),
    }


@pytest.mark.parametrize(
    ("typed", "code"), [("ter-003", "TER-003"), ("PAR-017", "PAR-"), ("conf-1", "CONF-"), ("acq-77", "ACQ")]
)
def test_a_terminals_code_without_an_entry_is_explained_by_its_family(typed: str, code: str) -> None:
    assert [entry.code for entry in find(typed)] == [code]


@every("kind", kinds())
def test_exactly_the_existing_codes_are_explained(kind: str) -> None:
    assert codes().keys() == kinds().keys()
    assert codes()[kind], "no code was found"
    found = Counter(entry.code for entry in ENTRIES if entry.kind == kind)
    assert set(found) == {str(code) for code in codes()[kind]}, (
        "add the code to en.toml and es.toml of posd/cli/explain, or remove the code"
    )
    assert max(found.values()) == 1


@every("entry", (*ENTRIES, *SPANISH), ids=lambda entry: f"{entry.language} {entry.title}")
def test_each_entry_has_a_meaning_and_a_risk_and_a_cure(entry: CodeEntry) -> None:
    assert entry.means
    assert entry.money
    for text in (entry.means, entry.comes, entry.money, entry.do):
        assert not re.search(r"[`{}|]", text)
        assert text == text.strip()
        assert not text or text[-1] in ".:?"
    assert entry.do.endswith(":") == bool(entry.commands)
    for command in entry.commands:
        if command.startswith("posd "):
            typed = command.replace("UUID", "ID").replace("RESULT", "approved").replace("AMOUNT", "1")
            parse(words_of_line(re.sub(r"\bID\b", "7f3c2a10-5b1e-4c6d-9a4f-0d2b8e6c1a55", typed)))


def test_without_a_code_all_codes_are_listed() -> None:
    assert [row[:2] for row in posd("explain").rows[1:]] == [[entry.kind, entry.code] for entry in ENTRIES]
    assert len(posd("explain", "--json").document) == len(ENTRIES)


def test_explain_names_the_nearest_code_for_an_unknown_code() -> None:
    done = posd("explain", "in_dubt", "--json").ends(2, "posd has no code in_dubt; did you mean in_doubt?")
    assert done.document["exit_code"] == 2
    assert near("missing reference")[0] == "missing_reference"
    assert "store.damaged" in near("damaged")
    assert near("zzzz") == []
    assert "\\u001b" in posd("explain", "\x1b[31m").stderr


def test_the_language_is_read_even_from_a_broken_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for language, means in (("es", "significa: Presente la tarjeta."), ("en", "means: Present the card.")):
        config.write_text(f'[local_api]\nlanguage = "{language}"\n')
        assert posd("explain", "present_card", config=config).lines[1] == means
    config.write_text("[local_api\n")
    posd("explain", "gap", config=config).ends(0)


def test_every_english_text_of_a_code_has_a_spanish_text() -> None:
    for english, spanish in zip(ENTRIES, SPANISH, strict=True):
        assert (english.kind, english.code, english.commands) == (spanish.kind, spanish.code, spanish.commands)
        assert spanish.language is Language.ES
        for name in ("means", "comes", "money", "do"):
            there, here = getattr(english, name), getattr(spanish, name)
            assert bool(there) == bool(here), f"{english.title}: {name}"
            assert there != here or not there or there == "No.", f"{english.title}: {name}"
    for name, kind in kinds().items():
        for there, here in zip(kind, kinds(Language.ES)[name], strict=True):
            assert there, name
            assert here not in {"", there}, name


def test_a_shell_completes_the_codes() -> None:
    offered = {item.value: item.help for item in explain.params[0].shell_complete(click.Context(explain), "In_d")}
    assert offered == {"in_doubt": "attention of a payment, attention of a print job, phase"}


# Words of payments. They are complete and true for each operation type, and their commands are valid.


EVENT = {"kind": "event", "event_id": "e-1"}
KINDS = [*map(str, OperationType), None, "barter"]


def ended(kind: str | None, result: str, **fields: Any) -> dict[str, Any]:
    """Return a final transaction. `fields` replace members of the outcome."""
    done = result == "approved"
    given = outcome(result, EVENT, **{"reached_acquirer": done, **fields})
    return transaction(type=kind, outcome=given, next_step="done" if done else "new_id_ok")


def said(kind: str | None) -> Iterator[str]:
    """Yield all texts of the command line about a transaction of this type."""
    running = transaction(type=kind)
    for result in Result:
        yield resolving(result, running)
        yield meaning(ended(kind, result))[1]
        yield meaning(ended(kind, result, reversal="refund"))[1]
        yield meaning(ended(kind, result, reached_acquirer=None))[1]
    yield from (attention_advice(code, running).words for code in AttentionCode)
    yield from (next_step({**running, "next_step": step}).words for step in NextStep)
    yield from (status_hint(status, running) for status in (None, *Status))
    yield from (words_of(running).fill(row["means"]) for row in chosen("search").values())
    yield hint(running)


@every("kind", KINDS, ids=str)
def test_each_text_fits_the_type_of_the_payment(kind: str | None) -> None:
    words = list(said(kind))
    if kind not in ("charge", "capture", "refund"):
        wrong = ("customer was", "customer may have been", "charge again", "payment")
        assert [each for each in words if any(part in each.replace("the payment that", "") for part in wrong)] == []
    if kind not in ("charge", "pre-auth", "capture", "refund"):
        assert [each for each in words if "posd void" in each] == []
    assert not [each for each in words if set(each.replace("{terminal}", "")) & set("{}")]


@every("kind", KINDS, ids=str)
def test_only_an_approval_is_described_as_done_and_an_unclear_end_as_uncertain(kind: str | None) -> None:
    approved = operation(kind).approved
    for result in Result:
        words = meaning(ended(kind, result))[1]
        assert (words == approved) == (result is Result.APPROVED)
        by_person = transaction(type=kind, outcome=outcome(result, {"kind": "operator"}, reached_acquirer=None))
        assert meaning(by_person)[1] == f"By an operator's decision: {words}"
        if result is not Result.APPROVED:
            assert "may have been" in meaning(ended(kind, result, reached_acquirer=None))[1]
    assert (approved in meaning(ended(kind, "approved", reversal="refund"))[1]) == (kind != "void")
    assert ("charged" in operation(kind).done) == (kind in ("charge", "capture", "post-tip"))


def test_only_an_operation_that_needs_the_card_asks_for_the_card() -> None:
    running = transaction(phase="active", status="TERMINAL_ACKNOWLEDGED")
    asking = {kind for kind in KINDS if "present the card" in hint({**running, "type": kind})}
    assert asking == {kind for kind in KINDS if state({**running, "type": kind}) == "waiting for card"}
    assert asking == {"charge", "pre-auth"}


def test_a_text_of_a_later_version_is_shown_unchanged() -> None:
    odd = "dance_{noun}"
    assert status_hint(odd, transaction()) == f"the terminal says {odd}"
    assert next_step(transaction(next_step=odd)) == (odd, ())
    assert odd in meaning(ended("void", "approved", reversal=odd))[1]
    assert attention_advice(odd, transaction()).commands == ("posd show {id}",)
    assert refused_step(odd) == refused_step("ask_person")


@pytest.mark.parametrize(
    ("kind", "original", "reference", "name"),
    [
        ("pre-auth", None, OTHER_ID, ID),
        ("pre-auth", None, None, "--reference UUID"),
        ("re-auth", OTHER_ID, "r", OTHER_ID),
        ("re-auth", None, "r", "--reference r"),
        ("re-auth", OTHER_ID, None, "--reference UUID"),
    ],
)
def test_the_commands_to_capture_or_void_a_reservation_name_it_correctly(
    kind: str, original: str | None, reference: str | None, name: str
) -> None:
    done = outcome("approved", EVENT, reached_acquirer=True, transaction_reference=reference)
    reserved = transaction(outcome=done, next_step="done", type=kind, original=original)
    commands = (f"posd capture {name} AMOUNT", f"posd void {name}")
    assert next_step(reserved).commands == commands
    used = next_step({**reserved, "derived": [OTHER_ID]}).words
    assert used.endswith("unless one of the two was done meanwhile.")
    assert ("unless" in next_step(reserved).words) == (kind == "re-auth")
    assert outcome_pairs(reserved)[-2:] == [("", command) for command in commands]


@pytest.mark.parametrize("serial", ["SN-0099", "SN-0001", "", None])
def test_an_outcome_names_the_terminal_that_ran_the_payment(serial: str | None) -> None:
    terminal = {"serial_number": serial} if serial is not None else "odd"
    done = {**outcome("approved", EVENT), "final_event": {"terminal": terminal}}
    shown = dict(outcome_pairs(transaction(outcome=done, next_step="done", terminal="SN-0001")))["terminal"]
    assert shown == ("SN-0099, though SN-0001 was asked" if serial == "SN-0099" else "SN-0001")


def test_an_advice_has_valid_commands_and_acknowledges_only_its_code() -> None:
    lines = [line for row in chosen("advice").values() for line in row.get("commands", ())]
    for code in AttentionCode:
        named = attention_advice(code, transaction(abortable=False)).commands
        lines += attention_advice(code, transaction()).commands
        assert not [command for command in named if command.startswith("posd abort")]
        assert {each.split()[-1] for each in named if each.startswith("posd acknowledge")} <= {code}
    assert "posd abort {id}" in attention_advice("stalled", transaction()).commands
    ended = attention_advice("no_callback", transaction(outcome=outcome("approved", EVENT))).commands
    assert (ended[-1], "posd reconcile {id}" in ended) == ("posd acknowledge {id} no_callback", False)
    for typed in (line.format(id=ID, name=ID) for line in lines):
        assert len(f"    {typed}") <= 80
        if typed.startswith("posd "):
            parse(words_of_line(typed.replace("RESULT", "approved").replace("AMOUNT", "1")))


@every("code", ["in_doubt", "released", None])
def test_no_release_is_advised_for_a_terminal_that_is_already_free(code: str | None) -> None:
    for free in (False, True):
        of = transaction(released=free)
        found = there(settling(of)) if code is None else attention_advice(code, of)
        assert ("posd release {id}" in found.commands) == (not free and code != "released")
        assert "posd resolve {id} RESULT" in found.commands
        assert "acquirer" in found.words


@every(
    ("section", "code", "ways"),
    [
        (
            "attention",
            "serial_mismatch",
            ["posd config check", "sudo systemctl reload posd", "posd quarantine --apply"],
        ),
        ("attention", "no_callback", ["posd tls status", "has expired", "closes by itself"]),
        ("check", "certificate", ["the shop's own PKI", "posd tls renew"]),
        ("check", "storage", ["Never delete posd.db*, callback.key or tls/"]),
    ],
)
def test_an_advice_names_each_cure_of_its_fault(section: str, code: str, ways: list[str]) -> None:
    row = chosen(section)[code]
    assert [way for way in ways if way not in f"{row['do']} {row['comes']} {row['commands']}"] == []


def test_the_clock_is_shown_and_set_in_the_same_time_zone() -> None:
    """`timedatectl set-time` takes the local time."""
    commands = [step.command for step in STEPS]
    assert "date" in commands
    assert any("timedatectl set-time" in str(command) for command in commands)


# Screens use one language. Each text exists in each language, with the same names in braces.


CLI = Path(str(cli.__file__)).parent
#: Sections that no screen shows, and sections of codes (other tests of this module test them).
OTHER = {"shared", "start", "event", "label", "limits", "limit", "kind", "labels"}
#: Texts of commands for developers of tills. These texts are English in all languages.
ENGLISH = {"says.demo.keep", "says.start.waits", "says.start.original"}
#: Texts that are the same in all languages, and names for English grammar.
SAME, GRAMMAR = {"commands", "status", "unseen", "see", "levels", "fields"}, {"whether", "are"}
#: Names of `OperationWords.fill`. Each language uses different names.
OF_OPERATION = {"noun", "subject", "done", "undone", "books", "followed_by", "lack", "approved", "twice"}
DOUBT = transaction(
    phase="in_doubt",
    next_step="ask_person",
    attention=[attention("in_doubt", "the connection broke off")],
    missing_proof=[{"code": "search_not_confirmed", "detail": "ask again"}],
)


def flat(tables: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, found in tables.items():
        if isinstance(found, Mapping):
            yield from flat(found, f"{path}{name}.")
        elif name not in SAME and isinstance(found, str):
            yield path + name, found


def fields(text: str) -> set[str]:
    return {name.partition(".")[0] for _, name, _, _ in Formatter().parse(text) if name} - GRAMMAR


def screens(language: Language) -> dict[str, str]:
    words = tomllib.loads((CLI / "explain" / f"{language}.toml").read_text("utf-8"))
    findings = CLI / "doctor" / ("findings.toml" if language is Language.EN else f"findings.{language}.toml")
    found = {name: text for name, text in flat(words) if name.partition(".")[0] not in OTHER | ENGLISH}
    return found | dict(flat(tomllib.loads(findings.read_text("utf-8"))))


def test_each_text_of_a_screen_exists_in_each_language_with_the_same_placeholders() -> None:
    english, spanish = screens(Language.EN), screens(Language.ES)
    assert english.keys() - spanish.keys() - ENGLISH == set()
    for name in english.keys() & spanish.keys():
        # The Spanish texts use "pago" for every operation.
        assert fields(spanish[name]) ^ fields(english[name]) <= OF_OPERATION, name


@pytest.mark.usefixtures("in_spanish")
def test_a_sentence_inside_a_sentence_is_translated_but_values_are_not() -> None:
    path = "/srv/the file: is a table; now"
    assert translate(f"there is no file {path}; name another one") == f"no hay un archivo {path}; nombre otro"
    assert translate("'clock' must be a table, is a list") == "'clock' debe ser una tabla, y es una lista"
    assert translate("words of a newer posd: no answer") == "words of a newer posd: sin respuesta"


@pytest.mark.usefixtures("in_spanish")
def test_months_are_in_the_language() -> None:
    months = [short(f"2026-{month:02}-15T12:00:00Z", year=True).split()[1] for month in range(1, 13)]
    assert " ".join(months) == "ene feb mar abr may jun jul ago sep oct nov dic"


def test_each_label_exists_in_each_language() -> None:
    ended = transaction(outcome=outcome("approved", {"kind": "event", "event_id": "e"}), phase="final")
    pairs = [*transaction_pairs(ended), *transaction_pairs(DOUBT), *outcome_pairs(ended), *job_pairs(print_job())]
    labels = {label for label, _ in pairs} | {*terminals.COLUMNS, *terminals.CLAIM_COLUMNS, "created"}
    labels |= {name for subject in (PAYMENT, PRINT_JOB) for name in (subject.title, *subject.columns, *subject.extra)}
    assert labels - read(Language.ES)["label"].keys() - {""} == set()


def test_the_locale_sets_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A locale without accents shows letters without them."""
    options = {"config": tmp_path / "config.toml", "socket": tmp_path / "none"}
    for locale, head in (("es_EC.UTF-8", "posd: NO ESTÁ EN MARCHA"), ("C.UTF-8", "posd: DOES NOT RUN")):
        monkeypatch.setenv("LC_ALL", locale)
        assert posd("status", **options).lines[0] == head
    monkeypatch.setenv("LC_ALL", "es_EC")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = posd_process("--socket", str(tmp_path / "none"), "status", config=tmp_path / "config.toml")
    assert done.lines[0] == "posd: NO ESTA EN MARCHA"


@pytest.fixture
def in_spanish() -> Iterator[None]:
    """Use Spanish in this process, as a command does with a Spanish locale."""
    use(Language.ES)
    yield
    use(Language.EN)


@pytest.fixture
def spanish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")


@pytest.mark.usefixtures("spanish")
def test_a_cashiers_text_is_in_the_users_language_but_in_json_in_posds_language() -> None:
    for options, language in (((), "es"), (("--json",), None)):
        done = asked([answer(DOUBT), answer({"history": []}), answer({"events": []})], "show", ID, *options)
        assert done.calls[0].headers.get("accept-language") == language


def test_a_text_missing_in_a_language_is_shown_in_english() -> None:
    assert read(Language.ES)["says"]["demo"] == read(Language.EN)["says"]["demo"]


def reasons() -> set[str]:
    """Return the reasons of health checks, in calls of `Check.of` and in the certificate check."""
    given: list[ast.expr] = []
    for module in (status, reload, certificate):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Check.of":
                given += [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 4:
                given.append(node.value.elts[3])
            elif isinstance(node, ast.Assign) and re.search(r"\breason$", ast.unparse(node.targets[0]).strip("()")):
                given.append(node.value.elts[-1] if isinstance(node.value, ast.Tuple) else node.value)
    found = {part.value for each in given for part in ast.walk(each) if isinstance(part, ast.Constant)} - {"reason"}
    return {*Doubt, *AddressConflict, *(str(code) for code in found if re.fullmatch("[a-z]+(_[a-z]+)*", str(code)))}


def test_each_reason_of_a_health_check_has_a_spanish_text() -> None:
    words = read(Language.ES)
    told = {code for row in words["check"].values() for code in row.get("found", {})} | words["doubt"].keys()
    assert told == reasons()
    for row in words["check"].values():
        assert row.get("does", {}).keys() <= row.get("found", {}).keys()


def failing(name: str, reason: str, *step: str | None) -> list[Answer]:
    """Return the responses for a status with one failed check."""
    document = well()
    check_of(name, "degraded", "english words", step or ("do that", "posd doctor"))(document)
    document["health"]["checks"][name]["reason"] = reason
    return [answer(document), NONE_OPEN]


@pytest.mark.usefixtures("spanish")
def test_the_advice_on_a_reason_has_only_the_commands_of_this_reason() -> None:
    """`posd restore --seen` confirms that a person has compared the payments. posd asks for no confirmation after a
    full disk.
    """
    script = failing("restore", "no_witness", "free the disk", None)
    check("status", script, 1, "Libere espacio en el disco", lacks=["--seen"], types="")


@pytest.mark.usefixtures("spanish")
@every("name", read(Language.ES)["check"])
def test_a_status_shows_the_daemons_text_only_for_an_unknown_reason(name: str) -> None:
    """The screen shows the daemon's text only for a reason that a newer posd has added."""
    rows = read(Language.ES)["doubt"] if name == "clock" else read(Language.ES)["check"][name]["found"]
    for reason in (*rows, "of_a_newer_posd"):
        done = asked(failing(name, reason), "status")
        known = reason in rows or name == "configuration"
        assert ("english" in done.stdout, "do that" in done.stdout) == (not known, False), done.stdout
        assert name == "configuration" or "> posd doctor" in done.stdout


def upkeep(reply: str) -> Answer:
    """Return the contract's example without texts of the daemon."""
    document = deepcopy(ANSWERS[reply]["200"])
    for entry in document.get("quarantine", ()):
        entry["reason"] = "no answer"
    return answer(document)


BUSY_TERMINAL = problem(409, "terminal_busy", "terminal SN-0001 runs another", f',"blocking_transaction":"{ID}"')
REASON = "it closed the connection without an answer"
HISTORY = answer({"history": [{"at": AT, "kind": "attempt", "judgement": "in_doubt", "reason": REASON}]})
#: Line -> typed answers, replies of the daemon, exit code, and words that only this screen has, without
#: accents, because the machine may lack the locale.
IN_SPANISH: dict[str, tuple[str, list[Answer], int, str]] = {
    f"show {ID}": ("", [answer(DOUBT), HISTORY, answer({"events": []})], 0, "n sin responder"),
    "list --attention": ("", [answer({"transactions": [DOUBT], "next_cursor": None})], 0, "!in_doubt"),
    f"abort {ID}": ("", [BUSY_TERMINAL], 1, f"pago que lo ocupa: {ID}"),
    f"release {ID} --operator Ana": ("se colgó\ns\n", [answer(DOUBT)] * 2, 0, " libre. Todav"),
    f"release {ID} --note x": ("n\n", [answer(DOUBT)], 1, f"Liberar el terminal de {ID}? [s/N]"),
    f"resolve {ID} approved --note x": ("\n", [MAY, answer(DOUBT)], 1, f"Registrar {ID} como approved (aprobado)?"),
    f"acknowledge {ID} in_doubt --note x": ("sí\n", [MAY, *[answer(DOUBT)] * 2], 0, "Quitar el aviso in_doubt?"),
    f"acknowledge {ID} gap --note x": ("", [MAY, answer(DOUBT)], 1, "no lo tiene (avisos: in_doubt)"),
    "prune": ("n\n", [upkeep("prune")], 1, ": 12 pagos, de antes del"),
    "reprocess": ("", [upkeep("reprocess")], 0, "pagos revisados: 1042"),
    "quarantine": ("", [upkeep("list_quarantine")], 0, "sin respuesta"),
    "clock": ("", [MAY], 1, "compare el reloj de esta m"),
}


@pytest.mark.usefixtures("spanish")
@every("line", IN_SPANISH)
def test_a_screen_in_spanish_has_no_english_sentence(line: str) -> None:
    types, script, code, words = IN_SPANISH[line]
    english = [f" {word} " for word in ("the", "of", "is", "are", "and", "was", "it", "cannot")]
    check(line, script, code, words, lacks=[*english, "[y/N]"], types=types, columns=160)


@pytest.mark.usefixtures("spanish")
def test_a_pipe_has_english_labels_for_programs() -> None:
    assert "state" in asked(IN_SPANISH["list --attention"][1], "list").lines[0]
