"""Rules of posd's structure that import-linter cannot check."""

import ast
import builtins
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import gt
from typing import TypeGuard

import pytest

from tests.house import source

#: Names that read a clock or a source of randomness directly.
BY_ITSELF = frozenset(
    (
        *("datetime.now", "datetime.today", "datetime.utcnow", "date.today"),
        *(
            "time.time",
            "time.time_ns",
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.clock_gettime",
        ),
        *("random.random", "random.uniform", "random.choice", "random.Random", "ifaddr.get_adapters"),
    )
)
#: Modules of the daemon that use such a name, and why.
MAY = {
    "posd.base.clocks": "the clocks themselves",
    "posd.daemon.main": "the service manager compares it with the machine's clock",
    "posd.daemon.surroundings": "the real things",
    "posd.terminals.interfaces": "the network itself",
    "posd.tls.certificate": "the network itself",
    "posd.tls.issue": "the command line's alone",
}
#: Folders and files that are not part of the daemon.
OTHERS = ("posd.cli", "posd.client", "posd.collect", "posd.relay", "posd.simulator", "posd.sandbox", "posd.testing")

#: Words that must not begin the docstring of a function. Such a word is not a verb of programming, or is not in the
#: imperative.
NO_VERBS = frozenset(
    (
        *("Be", "Bear", "Begin", "Believe", "Give", "Go", "Have", "Hear", "Keep", "Know", "Let", "Look", "Note"),
        *("Raises", "Returns", "Say", "See", "Take", "Tell", "Want"),
    )
)


@pytest.fixture(scope="module", autouse=True)
def _syntax_of_posd() -> Iterator[None]:
    """Remove the syntax trees of posd after these tests, because each garbage collection would visit them."""
    yield
    source.modules.cache_clear()


def nodes_of(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def test_no_folder_grows_beyond_its_budget_and_each_budget_falls_with_its_folder() -> None:
    """A budget is raised in a commit of its own, which says why."""
    text = (source.REPOSITORY / "tests" / "house" / "budgets.toml").read_text()
    budgets = {folder: source.Size(**size) for folder, size in tomllib.loads(text)["folders"].items()}
    sizes = {folder or "posd": size for folder, size in source.folders(source.modules()).items()}
    assert sizes.keys() == budgets.keys()
    over = {folder: (size, budgets[folder]) for folder, size in sizes.items() if any(map(gt, size, budgets[folder]))}
    assert over == {}, "raise it in tests/house/budgets.toml, in a commit of its own"
    loose = {
        folder: (size, budgets[folder]) for folder, size in sizes.items() if any(map(_is_loose, size, budgets[folder]))
    }
    assert loose == {}, "lower the budget"


def _is_loose(size: int, budget: int) -> bool:
    return budget > size * 1.03 + 5


def test_no_two_classes_have_one_name() -> None:
    """The exceptions are names that payments and print jobs share, and the client's types. The client's types have the
    names of the API.
    """
    places = defaultdict(set)
    for module in source.modules().values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and module.folder != "client":
                places[node.name].add(module.name.replace(".printing.", ".payments."))
    twice = {name for name, where in places.items() if len(where) > 1}
    text = (source.REPOSITORY / "tests" / "house" / "budgets.toml").read_text()
    assert twice == set(tomllib.loads(text)["names"]["twice"])


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count too."""
    modules = source.modules()
    assert source.circles({name: source.imported(module, modules) for name, module in modules.items()}) == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e"}, "f": {"a"}}
    assert source.circles(graph) == [("a", "b", "c"), ("e",)]


def test_every_module_of_pure_rules_is_covered_branch_by_branch() -> None:
    """The list for import-linter and the list for coverage name the same modules."""
    project = tomllib.loads((source.REPOSITORY / "pyproject.toml").read_text())["tool"]
    contracts = {contract["name"]: contract for contract in project["importlinter"]["contracts"]}
    rules = contracts["The rules do no I/O"]["source_modules"]
    assert project["coverage"]["run"]["include"] == [f"{name.replace('.', '/')}.py" for name in rules]
    assert set(rules) <= source.modules().keys()


def test_no_service_has_more_than_six_dependencies() -> None:
    """A service is a class that is not compared by its fields. A service that needs more parts takes a record of these
    parts.
    """
    classes = [(name, node) for name, module in source.modules().items() for node in module.nodes if _is_service(node)]
    assert len(classes) > 15
    given = {f"{name}.{node.name}": _parts(node) for name, node in classes}
    assert {name: parts for name, parts in given.items() if len(parts) > 6} == {}


def _is_service(node: ast.AST) -> TypeGuard[ast.ClassDef]:
    """Return whether a node is a class with `eq=False`, of msgspec or of a dataclass."""
    if not isinstance(node, ast.ClassDef):
        return False
    calls = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    return any(word.arg == "eq" for word in [*node.keywords, *(word for call in calls for word in call.keywords)])


def test_a_record_of_the_daemon_is_a_struct() -> None:
    """A dataclass is a service, or keeps a secret out of its repr, which a Struct cannot do for one field. The
    completion of a command's name loads the two tuples, and must not load msgspec.
    """
    daemon = (module for name, module in source.modules().items() if not name.startswith(OTHERS))
    classes = [node for module in daemon for node in module.nodes if isinstance(node, ast.ClassDef)]
    tuples = [node.name for node in classes if "NamedTuple" in map(ast.unparse, node.bases)]
    records = [node for node in classes if "dataclass" in _decorators(node) and not _is_service(node)]
    assert (tuples, [node.name for node in records if "repr=False" not in ast.unparse(node)]) == (
        ["Operation", "Text"],
        [],
    )


def _decorators(node: ast.ClassDef) -> str:
    return " ".join(map(ast.unparse, node.decorator_list))


def _parts(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign) and item.value is None]


def test_no_part_of_the_daemon_reads_a_clock_or_randomness_directly() -> None:
    """Only `posd.daemon.surroundings` and the event loop read clocks and randomness, so that tests can run the daemon
    in simulated time.
    """
    parts = {name: module for name, module in source.modules().items() if not name.startswith(OTHERS)}
    assert {name for name, module in parts.items() if _named(module.nodes) & BY_ITSELF} == MAY.keys()


def test_a_module_that_reads_a_clock_or_randomness_directly_is_found() -> None:
    text = "from time import monotonic\nasync def f(now=datetime.now):\n    await sleep(random.random())\n"
    assert _named(nodes_of(text)) == {"time.monotonic", "datetime.now", "random.random"}


def _named(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the attributes and the imported names, such as `time.monotonic`."""
    imported = {
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return imported | {
        f"{node.value.id}.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def test_only_the_writer_makes_checkpoints() -> None:
    """Before 3.51.3, SQLite can lose a commit while another connection begins a checkpoint ("The WAL-Reset Bug")."""
    naming = {
        name
        for name, module in source.modules().items()
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "PRAGMA wal_checkpoint" in node.value
    }
    assert naming == {"posd.storage.writer"}


def test_docstrings_begin_with_a_verb_of_programming_and_say_raise_for_errors() -> None:
    faults = [
        f"{name}:{line} {word}" for name, module in source.modules().items() for line, word in _misworded(module.nodes)
    ]
    assert faults == []


def test_a_misworded_docstring_is_found() -> None:
    text = '''class A:
    """Take. Raises B."""
    def one(self): "Note it."
    async def two(self): "Noted: raise it."
'''
    assert list(_misworded(nodes_of(text))) == [(1, "Raises"), (3, "Note")]


def test_every_exception_that_a_docstring_names_exists() -> None:
    parts = [module.nodes for module in source.modules().values()]
    known = {name for nodes in parts for name in _names(nodes)} | vars(builtins).keys()
    assert {name for nodes in parts for name in _raised(nodes)} - known == set()


def test_the_exceptions_that_a_docstring_names_are_found() -> None:
    text = 'def f():\n    """Raise Gone, or Late if it is. Say\n    Hello. It raises Other.\n    """\n    raise Away'
    assert (set(_raised(nodes_of(text))), _names(nodes_of(text))) == ({"Gone", "Late", "Other"}, {"Away"})


def _raised(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names of exceptions in docstrings."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for sentence in re.findall(r"\b[Rr]aises?\b([^.]*)", ast.get_docstring(node, clean=False) or ""):
                yield from re.findall(r"\b[A-Z][A-Za-z]*[a-z]\b", sentence)


def _names(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the classes, names and attributes of a module."""
    kinds = {ast.ClassDef: "name", ast.Name: "id", ast.Attribute: "attr"}
    return {getattr(node, kinds[type(node)]) for node in nodes if type(node) in kinds}


def _misworded(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield, for each class and function whose docstring has a forbidden word, its line and the word."""
    for node in nodes:
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        words = re.findall(r"\w+", ast.get_docstring(node, clean=False) or "")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and words and words[0] in NO_VERBS:
            yield node.lineno, words[0]
        elif "Raises" in words:
            yield getattr(node, "lineno", 1), "Raises"
