"""The long run of schemathesis: `python -m tests.openapi.cases [--cases N] [--seed N]`.

Requests of every call that the description allows, and such that it does not, to a running daemon with simulated
terminals. Half of those that it allows name payments, print jobs and terminals that there are. A fault is any 5xx, and
what tests/openapi/checks.py says of an answer. Exit code 1 where there was one.
"""

import argparse
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from tests.openapi import released
from tests.openapi.checks import STUCK_SECONDS, faults
from tests.openapi.gateway import SERIAL, Gateway, opened

#: Cases of one call and mode before the next one's turn: what a call leaves behind is there for the others.
TURN = 20
#: Payments, and print jobs, that are there at the beginning of each lap.
THERE = 10
#: Without these a start is that of a charge, and of a document of its own.
DERIVES = ("type", "original", "transaction_reference", "reprint_of")
#: What most generated amounts are not: decimals with few digits.
AMOUNT = {"amount": {"iva": "1.20", "subtotal_iva": "10.00"}}
#: Their terminal: what a case starts on the other one does not block it.
QUIET = "SN-QUIET"


def there(gateway: Gateway) -> list[dict[str, Any]]:
    """Make payments and print jobs; return the values that name them in paths."""
    found: list[dict[str, Any]] = []
    with httpx2.Client(timeout=STUCK_SECONDS, base_url=f"{gateway.till}/v1") as client:
        for number in range(THERE):
            payment, job = str(uuid4()), f"job-{uuid4()}"
            charge = {"terminal": QUIET, "amount": {"subtotal_iva0": number + 1}}
            client.put(f"/transactions/{payment}", json=charge).raise_for_status()
            client.get(f"/transactions/{payment}/outcome").raise_for_status()
            document = {"terminal": QUIET, "document": {"text": "Thank you!"}}
            client.put(f"/print-jobs/{job}", json=document).raise_for_status()
            found.append({"client_transaction_id": payment, "print_job_id": job, "serial": SERIAL, "id": 1})
    return found


class Run:
    """Asks, and counts the answers by call and status."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.answers: Counter[tuple[str, int]] = Counter()
        self.faults = 0

    def lap(self, number: int) -> None:
        """Give every call its turns."""
        known = st.sampled_from(there(self._gateway)) | st.none()
        for result in schemathesis.openapi.from_dict(released.today()).get_all_operations():
            operation = result.ok()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                names = known if mode is GenerationMode.POSITIVE else st.none()
                self._turn(operation.as_strategy(generation_mode=mode), names, number)

    def _turn(self, cases: st.SearchStrategy[Any], names: st.SearchStrategy[dict[str, Any] | None], lap: int) -> None:
        @seed(lap)
        @settings(
            max_examples=TURN,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(cases, names)
        def ask(case: Any, named: dict[str, Any] | None) -> None:
            if named is not None:
                case.path_parameters = {name: named[name] for name in case.path_parameters or {}}
                if case.method == "PUT" and isinstance(case.body, dict):  # a new one, on the terminal that there is
                    case.path_parameters = {name: str(uuid4()) for name in case.path_parameters}
                    case.body = {name: value for name, value in case.body.items() if name not in DERIVES}
                    case.body |= {"terminal": SERIAL} | (AMOUNT if "transactions" in case.path else {})
            response, fault = faults(case, self._gateway)
            self.answers[case.operation.definition.raw["operationId"], response.status_code] += 1
            if response.status_code >= 500 and not fault:
                fault = f"{case.as_curl_command()}\n{response.status_code} {response.text[:2000]}"
            if fault:
                self.faults += 1
                print(fault, flush=True)

        with suppress(Unsatisfiable):  # there is nothing that a call without parameters does not allow
            ask()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.openapi.cases", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="at least so many")
    parser.add_argument("--seed", type=int, default=None, help="that of an earlier run, for the same cases")
    given = parser.parse_args(arguments)
    number = secrets.randbelow(2**32) if given.seed is None else given.seed
    print(f"schemathesis {schemathesis.__version__}, seed {number}", flush=True)
    with tempfile.TemporaryDirectory(prefix="posd-") as home, opened(Path(home), (SERIAL, QUIET)) as gateway:
        run, laps = Run(gateway), 0
        while run.answers.total() < given.cases:
            run.lap(number + laps)
            laps += 1
            print(f"{run.answers.total()} cases, {run.faults} faults", flush=True)
    print(*_lines(run.answers), sep="\n")
    return 1 if run.faults else 0


def _lines(answers: Counter[tuple[str, int]]) -> Iterator[str]:
    for name in sorted({name for name, _ in answers}):
        statuses = {status: count for (of, status), count in sorted(answers.items()) if of == name}
        yield f"{name:24}" + "".join(f"{status}: {count:<7}" for status, count in statuses.items())


if __name__ == "__main__":
    sys.exit(main())
