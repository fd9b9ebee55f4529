"""Texts of `posd doctor`. Each text is used, its placeholders can be filled, and its commands are valid."""

import ast
import re
import shlex
from pathlib import Path
from string import Formatter

from posd.cli import doctor
from posd.cli.doctor.context import DoctorContext, texts
from posd.config import parse as configuration
from posd.tls import certificate as dates
from posd.tls import issue
from tests.cli.manual.parsing import parse

#: Texts that several findings share.
REMEDIES = texts()["remedy"]
CODES = [(check, name) for check, group in texts().items() if group is not REMEDIES for name in group]


class Filler(str):
    """Values that a check would provide."""

    __slots__ = ()

    def __format__(self, _: str) -> str:
        return str(self)

    def __getattr__(self, _: str) -> "Filler":
        return self


def fields(*templates: str) -> set[str]:
    named = (field for template in templates for _, field, _, _ in Formatter().parse(template) if field)
    return {field.partition(".")[0] for field in named}


def test_each_finding_can_be_filled_and_each_command_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    shop = DoctorContext(file, configuration("", file=file), (), pid=1)
    for check, name, remedy in [*((*code, "") for code in CODES), *(("certificate", "ends", one) for one in REMEDIES)]:
        text = texts()[check][name]
        text = {"means": text} if isinstance(text, str) else {**text, **REMEDIES.get(remedy, {})}
        needed = fields(text["means"], text.get("do", ""), *text.get("commands", ()))
        given = {field: Filler("x") for field in needed - {"subject", "key"} if not hasattr(shop, field)}
        found = shop.tell(f"{check}.{name}", "x", key="webhooks.listen", remedy=remedy, **given)
        assert found.meaning
        for command in found.commands:
            if typed := re.fullmatch(r"(?:sudo (?:-u \S+ )?|runuser -u \S+ -- )?posd (.*?)(?: > \S+)?", command):
                parse(shlex.split(typed[1]))


def test_each_finding_is_used_by_a_check_and_each_finding_of_a_check_has_its_text() -> None:
    said = set()
    for path in (*Path(str(doctor.__file__)).parent.glob("*.py"), *map(Path, (dates.__file__, issue.__file__))):
        said |= {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    assert [code for code in CODES if ".".join(code) not in said and code[1] not in said] == []
    assert [name for name in REMEDIES if name not in said] == []
    whole = {text for text in said if isinstance(text, str) and re.fullmatch(rf"({'|'.join(texts())})\.[a-z_]+", text)}
    keys = {"database.path", "configuration", "terminal"}
    assert {text for text in whole - keys if tuple(text.split(".")) not in CODES} == set()
