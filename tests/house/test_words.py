"""The words of posd against its source: each sentence of a screen has its Spanish text, and no text is unused."""

import ast
import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

import posd as package
from manual.pages import pages
from posd import cli
from posd.base import limits
from posd.base.text import Language
from posd.cli import doctor
from posd.cli.doctor.context import texts
from posd.cli.explain.catalogue import chosen, read, translate, use
from posd.cli.main import main
from posd.clock.rules import WORDS
from posd.tls import certificate as dates
from posd.tls import issue

PACKAGE = Path(package.__file__).parent


@pytest.fixture
def in_spanish() -> Iterator[None]:
    use(Language.ES)
    yield
    use(Language.EN)


#: Files -> calls and functions with sentences that a screen shows: name -> places of the sentences among the arguments.
#: Without places, the function returns the sentences.
FAULTS = dict.fromkeys(("fault", "_fault", "RequestFault", "invalid"), (1,))
COMPOSED: Mapping[str, Mapping[str, Sequence[int]]] = {
    "config/*.py": {
        **dict.fromkeys(("unusable", "ValueFault"), (0, 1)),
        "unread": (1, 2),
        "matching": (1, 2),
        **dict.fromkeys(("path_fault", "pointer_fault", "_nearest", "type_name"), ()),
    },
    "clock/*.py": {"WORDS": (), "RemedyStep": (0,)},
    **{files: {} for files in ("httpd/*.py", "relay/*.py", "logs/*.py")},
    "storage/*.py": {"CANNOT": ()}
    | dict.fromkeys(("StoreError", "UnusableFile", "StorageUnavailable", "BadTarget"), (0,)),
    "upkeep/*.py": dict.fromkeys(("StoreError", "UnusableFile", "ValueError", "InvalidIdList"), (0,))
    | {"add": (1, 2), "_words": ()},
    "base/*.py": {"ValueError": (0,)},
    "api/*.py": {"WAITING": (), "storage_problem": (0,), "ValueError": (0,), **FAULTS},
    "calls/*.py": {"ValueError": (0,), **FAULTS},
    "records/*.py": {"storage_problem": (0,), "KeyFileError": (0,), **FAULTS},
    "daemon/*.py": {"SocketError": (0,), "StoreError": (0,), "_why": ()},
    "tls/*.py": dict.fromkeys(("TlsError", "SubjectError", "ConnectionError"), (0,)) | {"outside_dates": ()},
    "terminals/*.py": dict.fromkeys(("CallFailed", "ProbeResult", "Doubtful", "OSError", "ValueError"), (0,))
    | {"AnotherFingerprint": (1,), "RemedyStep": (0,)}
    | dict.fromkeys(("_reason", "why_not", "words", "detail", "NOT_BORNE", "NOT_ANNOUNCED"), ()),
    "payments/*.py": dict.fromkeys(("CallFailed", "Doubtful", "NotSent"), (0,))
    | dict.fromkeys(("doubt", "taken_over", "_note_damage", "_unusable", "_disprove"), (1,))
    | {
        "_words": (),
        "_hole": (),
        "_hear": (2,),
        "SearchFailed": (0,),
        "attend": (3,),
        "disputed": (1,),
        "Failure": (2,),
        "_unknown": (1,),
        "misfit": (),
        "storage_problem": (0,),
        **FAULTS,
    },
    "printing/*.py": dict.fromkeys(("CallFailed", "Doubtful", "NotSent"), (0,))
    | dict.fromkeys(("doubt", "taken_over", "_accept", "_reopen"), (1,))
    | {"NoAnswer": (0,), "attend": (3,), "storage_problem": (0,), **FAULTS},
}
#: Problems whose Spanish text needs no words of the daemon.
SAYS_ALL = {code for code, row in read(Language.ES)["problem"].items() if row.get("says_all")}


def sentences(node: ast.expr | None, module: ModuleType, local: Mapping[str, Sequence[ast.expr]]) -> Sequence[str]:
    """Return the sentences of an expression, with a number for each value that its module does not state as text."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name) if name in local:
            kept = [each for each in local[name] if ast.unparse(each) != "''"]
            return [text for each in kept for text in sentences(each, module, {})]
        case ast.Name(id=name):
            return [str(getattr(module, name, 7))]
        case ast.IfExp(body=first, orelse=second):
            return [*sentences(first, module, local), *sentences(second, module, local)]
        case ast.JoinedStr(values=parts):
            return ["".join(each) for each in itertools.product(*(sentences(part, module, local) for part in parts))]
        case ast.BinOp(op=ast.Add()):
            return sentences(ast.JoinedStr(values=[node.left, node.right]), module, local)
        case ast.Subscript(value=value):
            return sentences(value, module, local)
        case ast.Dict(values=values) | ast.Tuple(elts=values):
            return [text for value in values for text in sentences(value, module, local)]
        case ast.FormattedValue(value=value):
            return sentences(value, module, local)
    return ["7"]


def assigned(function: ast.AST) -> Mapping[str, Sequence[ast.expr]]:
    """Return the values that a function assigns to each of its names."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return found


def given(node: ast.AST, named: Mapping[str, Sequence[int]]) -> Sequence[ast.expr | None]:
    """Return the expressions in `node` that may be sentences on a screen."""
    match node:
        case ast.Call(func=ast.Name(id="Problem"), args=[ast.Constant(value=str(code)), words]):
            return [words] if code not in SAYS_ALL else []
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log")), keywords=keywords):
            return [keyword.value for keyword in keywords if keyword.arg in ("detail", "error", "reason")]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args, keywords=keywords) if name in named:
            told = [keyword.value for keyword in keywords if keyword.arg == "message"]
            return [*(args[place] for place in named[name] if place < len(args)), *told]
        case ast.Dict(keys=keys, values=values):
            return [each for key, each in zip(keys, values, strict=True) if key and ast.unparse(key) == "'message'"]
        case ast.Yield(value=ast.Tuple(elts=[_, subject, detail])):
            return [subject, detail]
        case (
            ast.AnnAssign(target=ast.Name(id=name), value=value) | ast.Assign(targets=[ast.Name(id=name)], value=value)
        ) if name in named:
            return [value]
        case ast.FunctionDef(name=name) if name in named:
            return [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
    return []


def texts_of(files: str, expressions: Callable[[ast.AST], Sequence[ast.expr | None]]) -> Iterator[str]:
    """Yield the texts of the chosen expressions in files of posd."""
    for path in sorted(PACKAGE.glob(files)):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        module = importlib.import_module(name.removesuffix(".__init__"))
        tree = ast.parse(path.read_text("utf-8"))
        tables = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for part in (*tables, *functions):
            local = assigned(part) if part in functions else {}
            for each in (found for node in ast.walk(part) for found in expressions(node)):
                yield from sentences(each, module, local)


@functools.cache
def composed() -> frozenset[str]:
    """Return the sentences that posd composes for a screen or its log, also the findings of verify and the limits."""
    texts = {
        text
        for files, named in COMPOSED.items()
        for text in texts_of(files, functools.partial(given, named=named))
        if re.search("[a-z]+ |\\S [a-z]", text) and re.search("[a-z]{3}", text)
    }
    counted = (f"7 {limit.unit} of {limit.of}" for limit in limits.ALL)
    remedies = (text.format(now=7, built=7, highest=7, step="7 days") for text in WORDS.values())
    return frozenset(texts).union(counted, remedies)


def test_each_sentence_that_posd_composes_has_a_spanish_text(in_spanish: None) -> None:
    english = re.compile(r"(?<!\S)(the|is|of|and|was|it|cannot|must|has|write|days)(?!\S)")
    lacking = {text for text in composed() if translate(text) == text or english.search(translate(text))}
    assert lacking == set(), "add the sentence to [sentence] or [label] of posd/cli/explain/es.toml"


def test_every_text_of_the_catalogue_is_used() -> None:
    source = "\n".join(file.read_text("utf-8").lower() for file in Path(str(cli.__file__)).parent.rglob("*.py"))
    said = {**chosen("says"), "report": chosen("report")["says"]}
    for command, named in said.items():
        for name, text in named.items():
            assert name in source or name.partition("_")[2] in source or name.split("_")[-1] in source, name
            for _, field, _, _ in Formatter().parse(text):
                assert not field or f"{field}=" in source or f'"{field}"' in source, f"{command}.{name}: {field}"


def test_each_spanish_sentence_translates_a_sentence_of_posd() -> None:
    folders = ("base", "cli", "client", "config", *(files.partition("/")[0] for files in COMPOSED))
    kinds = ast.Constant | ast.JoinedStr | ast.BinOp
    found = composed() | {
        text
        for folder in dict.fromkeys(folders)
        for text in texts_of(f"{folder}/**/*.py", lambda node: [node] if isinstance(node, kinds) else [])
    }
    # click composes its messages of parts
    of_click = "".join(path.read_text("utf-8") for path in Path(click.__file__).parent.glob("*.py"))
    parts = {english: re.split("{[^}]*}", english) for english in read(Language.ES)["sentence"]}
    patterns = {english: re.compile(".*?".join(map(re.escape, fixed)), re.DOTALL) for english, fixed in parts.items()}
    used = {
        english
        for english, fixed in parts.items()
        if any(max(fixed, key=len) in text and patterns[english].search(text) for text in found)
        or all(part.strip(" .?()") in of_click for part in fixed)
    }
    # An entry is also used if it is another entry with its placeholder filled, such as "none is known".
    unused = {one for one in parts.keys() - used if not any(patterns[other].fullmatch(one) for other in used)}
    assert unused == set(), "remove the sentence from [sentence] of posd/cli/explain/es.toml, or correct it"


def test_each_finding_is_used_by_a_check_and_has_a_text() -> None:
    remedies, said = texts()["remedy"], set()
    codes = [(check, name) for check, group in texts().items() if group is not remedies for name in group]
    for path in (*Path(str(doctor.__file__)).parent.glob("*.py"), *map(Path, (dates.__file__, issue.__file__))):
        said |= {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    assert [code for code in codes if ".".join(code) not in said and code[1] not in said] == []
    assert [name for name in remedies if name not in said] == []
    whole = {text for text in said if isinstance(text, str) and re.fullmatch(rf"({'|'.join(texts())})\.[a-z_]+", text)}
    keys = {"database.path", "configuration", "terminal"}
    assert {text for text in whole - keys if tuple(text.split(".")) not in codes} == set()


def test_each_spanish_text_of_the_help_is_on_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    runner = CliRunner()
    shown = "".join(runner.invoke(main, [*page.path[1:], "--help"], prog_name="posd").output for page in pages())
    written = "".join(shown.split())
    unused = {
        english for english, spanish in read(Language.ES)["help"].items() if "".join(spanish.split()) not in written
    }
    assert unused == set(), "remove the text from [help] of posd/cli/explain/es.toml, or correct it"
