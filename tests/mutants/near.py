"""The tests near a module. A near test imports the module or a user of the module, or is a vector. All these tests run
the module in their own process.
"""

import ast
import functools
import tomllib
from pathlib import Path

#: The vectors run all code that reads messages of terminals and tills, in any module.
VECTORS = "tests/vectors/test_vectors.py"
#: Runs of the whole daemon in virtual time. They reach the use cases.
SIMULATED = "tests/mutants/simulated.py"
#: Tests of a daemon in a process of its own.
DAEMON = "tests/e2e/"
#: Modules with rules without I/O, as in the list for the coverage. Tables and properties test them completely.
PURE_MODULES = [
    file.removesuffix(".py").replace("/", ".")
    for file in tomllib.loads(Path("pyproject.toml").read_text())["tool"]["coverage"]["run"]["include"]
]
#: Folders whose tests call posd's parts in their own process.
FOLDERS = ("config", "core", "services", "store", "terminals", "web")
PURE = ("tests/config/", "tests/core/")


def near(module: str) -> tuple[str, ...]:
    """Return the files of the tests near a module."""
    users = {
        f"{module.rpartition('.')[0]}.{path.stem}"
        for path in path_of(module).parent.glob("*.py")
        if module in _names(ast.parse(path.read_text()))
    }
    found = {file for file, names in _imported().items() if module in names or users & names}
    if module in PURE_MODULES:
        return (*sorted({file for file in found if file.startswith(PURE)} or found), VECTORS)
    return tuple(sorted(found | {VECTORS, SIMULATED}))


@functools.cache
def _imported() -> dict[str, set[str]]:
    """Return the imports of each test file, by path: modules, and names in modules."""
    files = [file for folder in FOLDERS for file in Path("tests", folder).glob("test_*.py")]
    helpers = [file for folder in FOLDERS for file in Path("tests", folder).glob("[!t_]*.py")]
    of_helper = {".".join(file.with_suffix("").parts): set(_names(ast.parse(file.read_text()))) for file in helpers}
    found = {}
    for file in files:
        names = set(_names(ast.parse(file.read_text())))
        found[str(file)] = names.union(*(of_helper.get(name, ()) for name in names))
    return found


def _names(tree: ast.Module) -> list[str]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    names = [f"{node.module}.{alias.name}" for node in found for alias in node.names]
    return [str(node.module) for node in found] + names


def path_of(module: str) -> Path:
    """Return the file of a module."""
    return Path(*module.split(".")).with_suffix(".py").absolute()


def modules_of(name: str) -> list[str]:
    """Return a module, or all modules below a folder."""
    path = path_of(name)
    files = [path] if path.exists() else sorted(path.with_suffix("").rglob("[!_]*.py"))
    return [".".join(file.relative_to(Path.cwd()).with_suffix("").parts) for file in files]
