"""An environment in which the interpreter keeps bytecode, as an installed posd has it beside its source."""

from collections.abc import Mapping

from tests.bench.bench import Bench


def as_installed(bench: Bench) -> Mapping[str, str]:
    """Return the variables; the first process that runs with them writes the bytecode.

    None for a short run: it would take longer than all that comes after it.
    """
    if bench.short:
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bench.home / "bytecode")}
