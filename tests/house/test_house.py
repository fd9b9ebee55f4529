"""What holds of the structure of posd's code beside the contracts of import-linter."""

import tomllib

from tests.house import source


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count: a circle cannot be read, however late it closes."""
    modules = source.modules()
    assert source.circles({name: source.imported(module, modules) for name, module in modules.items()}) == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e"}, "f": {"a"}}
    assert source.circles(graph) == [("a", "b", "c"), ("e",)]


def test_every_rule_without_io_is_covered_branch_by_branch() -> None:
    """One list for import-linter, one for coverage: they name the same modules."""
    project = tomllib.loads((source.REPOSITORY / "pyproject.toml").read_text())["tool"]
    contracts = {contract["name"]: contract for contract in project["importlinter"]["contracts"]}
    rules = contracts["The rules do no I/O"]["source_modules"]
    assert project["coverage"]["run"]["include"] == [f"{name.replace('.', '/')}.py" for name in rules]
    assert set(rules) <= source.modules().keys()
