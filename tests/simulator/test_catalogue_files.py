"""Scenario files. All shipped files can be read.

The simulator reports a mistake in a user's file with the name of the file.
"""

from pathlib import Path

import pytest

from posd.simulator import SettingsError
from posd.simulator.scenario import read
from tests.rig.tables import every
from tests.simulator.own import APPROVED, A, step, write

WRONG = [
    ("steps = 1", "steps"),
    ("", "steps"),
    ("[start]\noops = 1\n" + APPROVED, "oops"),
    (step(A, oops="1"), r"oops.*steps\[0\]"),
    (step(A, after="[2, 1]"), r"after must be seconds"),
    (step(), r"either status or do"),
    (step(do='"fly"'), r"fly"),
    (step(do='"unplug"', seconds="-1"), r"seconds"),
    (step(A, deliver="{ late = -1 }"), r"deliver\.late"),
    (step(A, restates="true"), r"no event before"),
    (step(A, authorized_amount='"5"'), r"goes with an APPROVAL"),
    (step("APPROVAL", authorized_amount='"0"'), r"authorized_amount must be above 0"),
    ("[start]\nstatus = 199\n" + APPROVED, r"status"),
    ('[search]\nfault = "gone"\n' + APPROVED, r"gone"),
    ('[start]\nrefusal = { code = "X", message = "Y" }\n' + APPROVED, r"refusal goes with a status"),
    ('amount = "9001"\n' + APPROVED, r"9000\.01 to 9000\.99"),
    ('amount = "9000.01"\naway = true\n' + APPROVED, r"cannot be chosen by amount"),
    ("summary = \n", r"Invalid value"),
]


@every(("content", "named"), WRONG, ids=range(len(WRONG)))
def test_a_fault_of_a_file_is_reported_with_its_name_and_the_key(tmp_path: Path, content: str, named: str) -> None:
    file = write(tmp_path, content)
    with pytest.raises(SettingsError, match=named) as raised:
        read(file)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("content", [b"\xff", b"summary = 1"])
def test_a_binary_or_missing_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "own.toml"
    with pytest.raises(SettingsError, match=r"own\.toml"):
        read(file)
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"own\.toml"):
        read(file)
