"""Screens use one language. Each text exists in each language, with the same names in braces."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from posd import cli
from posd.api import certificate
from posd.base.text import Language
from posd.cli.explain.catalogue import read, use
from posd.cli.payments.show import PAYMENT, outcome_pairs, transaction_pairs
from posd.cli.payments.words import meaning
from posd.cli.printing import PRINT_JOB, job_pairs
from posd.cli.terminals import command as terminals
from posd.cli.watch.state import ListName, WatchState
from posd.cli.watch.texts import became, heading, what
from posd.clock.rules import Doubt
from posd.daemon import reload, status
from posd.terminals.identity import AddressConflict
from tests.cli.documents import AT, ID, answer, attention, outcome, print_job, transaction
from tests.cli.processes import asked, asked_on_terminal, posd, posd_process
from tests.cli.stub import problem
from tests.cli.test_status import NONE_OPEN, check, well
from tests.cli.watch.shops import BUSY, NOW, drawn, identity
from tests.support.tables import every

CLI = Path(str(cli.__file__)).parent
#: Sections that no screen shows, and sections of codes (tests/cli/test_explain.py tests them).
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


def test_each_text_of_a_screen_exists_in_each_language_with_the_same_names() -> None:
    english, spanish = screens(Language.EN), screens(Language.ES)
    assert english.keys() - spanish.keys() - ENGLISH == set()
    for name in english.keys() & spanish.keys():
        # The Spanish texts use "pago" for every operation.
        assert fields(spanish[name]) ^ fields(english[name]) <= OF_OPERATION, name


def test_each_label_exists_in_each_language() -> None:
    ended = transaction(outcome=outcome("approved", {"kind": "event", "event_id": "e"}), phase="final")
    pairs = [*transaction_pairs(ended), *transaction_pairs(DOUBT), *outcome_pairs(ended), *job_pairs(print_job())]
    labels = {label for label, _ in pairs} | {*terminals.COLUMNS, *terminals.CLAIM_COLUMNS, "created"}
    labels |= {name for subject in (PAYMENT, PRINT_JOB) for name in (subject.title, *subject.columns, *subject.extra)}
    assert labels - read(Language.ES)["label"].keys() - {""} == set()


def test_a_payment_in_doubt_is_shown_in_spanish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    reason = "it closed the connection without an answer"
    history = {"history": [{"at": AT, "kind": "attempt", "judgement": "in_doubt", "reason": reason}]}
    seen = asked_on_terminal([answer(DOUBT), answer(history), answer({"events": []})], "show", ID)
    for said in (
        "siguiente ask_person: Pregunte al encargado.",
        "aviso in_doubt: ",
        "fase in_doubt (en duda)",
        "falta una prueba: search_not_confirmed",
        "hora (",
        "enviado, pero no se sabe si el",
        "cerró la conexión sin",
    ):
        assert said in seen.words, seen.screen
    assert "broke off" not in seen.words, "the Spanish sentence replaces the daemon's text"
    assert seen.screen.isascii() is False
    page = [answer({"transactions": [DOUBT], "next_cursor": None})]
    listed = asked_on_terminal(page, "list", "--attention").screen
    assert "estado" in listed.splitlines()[0]
    assert {"en", "duda,", "!in_doubt"} <= set(listed.split())
    # Programs read the output in a pipe.
    assert "state" in asked(page, "list").lines[0]


@every("locale", ["es_EC.UTF-8", "C.UTF-8"])
def test_the_locale_sets_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locale: str) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    done = posd("status", config=tmp_path / "config.toml", socket=tmp_path / "none")
    assert done.stdout.splitlines()[0] == ("posd: NO ESTÁ EN MARCHA" if locale[:2] == "es" else "posd: DOES NOT RUN")


def test_a_refusal_shows_its_meaning_and_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    busy = problem(409, "terminal_busy", "terminal SN-0001 runs another", f',"blocking_transaction":"{ID}"')
    refused = asked([busy], "abort", ID).stderr
    assert refused.startswith(f"posd: El terminal está ocupado.\n  pago que lo ocupa: {ID}\n")
    assert "no se envió nada" in refused


@every("arguments", [("show", ID), ("show", ID, "--json")])
def test_a_cashiers_text_is_in_the_users_language_and_in_json_in_the_daemons(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    done = asked([answer(DOUBT), answer({"history": []}), answer({"events": []})], *arguments)
    assert done.calls[0].headers.get("accept-language") == (None if "--json" in arguments else "es")


@every(
    ("kind", "result", "says"),
    [
        ("charge", "approved", "Se cobró al cliente."),
        ("pre-auth", "approved", "no se cobra nada antes de capturarlo"),
        ("refund", "approved", "Se devolvió el dinero."),
        ("void", "approved", "Se anuló el original"),
        ("void", "declined", "no se anuló nada, y el original no cambia"),
    ],
)
def test_a_result_means_in_spanish_what_the_operation_did(kind: str, result: str, says: str) -> None:
    event = outcome(result, {"kind": "event", "event_id": ID}, reached_acquirer=True, reversal="cancellation")
    use(Language.ES)
    try:
        assert says in meaning(transaction(type=kind, outcome=event, phase="final"))[1]
    finally:
        use(Language.EN)


def test_the_live_view_is_in_the_language() -> None:
    use(Language.ES)
    try:
        view = "\n".join(drawn(WatchState(BUSY), 100))
        row = next(row for row in BUSY.rows(NOW) if row.identity == identity(1) and row.section is ListName.OPEN)
        told = (heading(row), what(row), became(row, "abort", {"outcome": None})[0])
    finally:
        use(Language.EN)
    for word in ("accesible", "sin respuesta", "cobro: espera la tarjeta", "pregunte a una persona", "última hora"):
        assert word in view, view
    assert told[:2] == (f"pago {identity(1)}", "pago de 11.20 en SN-0001")
    assert told[2].startswith("se pidió abortar pago de 11.20 en SN-0001. Todavía puede aprobarse")


def test_a_locale_without_accents_shows_letters_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = posd_process("--socket", str(tmp_path / "none"), "status", config=tmp_path / "config.toml")
    assert done.lines[0] == "posd: NO ESTA EN MARCHA"


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


def test_the_advice_on_a_reason_has_only_the_commands_of_this_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """`posd restore --seen` confirms that a person has compared the payments. posd asks for no confirmation after a
    full disk.
    """
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    document = well()
    check("restore", "degraded", "the witness cannot be written", ("free the disk", None))(document)
    document["health"]["checks"]["restore"]["reason"] = "no_witness"
    seen = asked_on_terminal([answer(document), NONE_OPEN], "status")
    assert ("Libere espacio en el disco" in seen.words, "--seen" in seen.words) == (True, False), seen.screen


@every("name", read(Language.ES)["check"])
def test_a_status_with_many_faults_has_no_text_of_the_daemon(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The screen shows the daemon's text only for a reason that a newer posd has added."""
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    rows = read(Language.ES)["doubt"] if name == "clock" else read(Language.ES)["check"][name]["found"]
    for reason in (*rows, "of_a_newer_posd"):
        document = well()
        check(name, "degraded", "english words", ("do that", "posd doctor"))(document)
        document["health"]["checks"][name]["reason"] = reason
        document["configuration"]["refused"] = None
        seen = asked_on_terminal([answer(document), NONE_OPEN], "status")
        assert ("english" in seen.words, "do that" in seen.words) == (
            reason not in rows and name != "configuration",
            False,
        ), seen.screen
        assert name == "configuration" or "> posd doctor" in seen.words


@every(
    ("line", "types", "code", "words"),
    [
        (
            f"release {ID} --operator Ana",
            "se colgó\ns\n",
            0,
            ["Por qué (se guarda con: pago)", "está libre. Todavía no"],
        ),
        (f"release {ID} --note x", "n\n", 1, [f"¿Liberar el terminal de {ID}? [s/N]", "No se cambió nada."]),
        (f"resolve {ID} approved --note x", "\n", 1, [f"¿Registrar {ID} como approved (aprobado)?"]),
        (f"acknowledge {ID} in_doubt --note x", "sí\n", 0, ["¿Quitar el aviso in_doubt?", "in_doubt se quitó."]),
        (f"acknowledge {ID} gap --note x", "", 1, [f"{ID} no lo tiene (tiene: in_doubt)"]),
    ],
)
def test_questions_and_answers_of_a_decision_are_in_spanish(
    monkeypatch: pytest.MonkeyPatch, line: str, types: str, code: int, words: list[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    seen = asked_on_terminal([answer(DOUBT), answer(DOUBT)], *line.split(), types=types)
    assert (seen.returncode, [each for each in words if each not in seen.words]) == (code, []), seen.screen
    for word in ("[y/N]", "Why", "Free", "Book", "Clear", "cannot", "Nothing"):
        assert word not in seen.screen


REPORTS = json.loads((CLI.parent / "api" / "examples.json").read_text("utf-8"))["answers"]


@every(
    ("line", "types", "reply", "code", "words"),
    [
        ("prune", "n\n", "prune", 1, ["Se eliminarían: 12 pagos", "¿Eliminarlo?", "[s/N]", "No se eliminó nada."]),
        ("reprocess", "", "reprocess", 0, ["pagos revisados: 1042", "No había ninguna diferencia."]),
        ("quarantine", "", "list_quarantine", 0, ["recibido", "canal", "el primero: posd quarantine 1"]),
    ],
)
def test_the_upkeep_of_the_database_is_in_spanish(
    monkeypatch: pytest.MonkeyPatch, line: str, types: str, reply: str, code: int, words: list[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    document = REPORTS[reply]["200"]
    for entry in document.get("quarantine", ()):
        entry["reason"] = "motivo"  # the text comes from the daemon
    seen = asked_on_terminal([answer(document)], *line.split(), types=types, columns=160)
    assert (seen.returncode, [each for each in words if each not in seen.words]) == (code, []), seen.screen
    assert not {"the", "of", "is", "are", "and", "payments", "removed"} & set(seen.words.lower().split()), seen.screen
