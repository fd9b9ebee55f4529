"""The description itself.

The description is valid and complete, its examples are right, and posd serves it in little time.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from posd.api import routes
from posd.base.problems import NOT_OF_UNKNOWN_ID, PROBLEMS, UNKNOWN_ID
from tests.openapi import released
from tests.rig.described import described
from tests.rig.tables import every

DOCUMENT = released.today()
DESCRIBED = described()


def contents() -> list[Any]:
    """Return every media content of the description with its operation."""
    found = []
    for operation in DESCRIBED.operations():
        for status, answer in operation["responses"].items():
            for media, content in answer["content"].items():
                found.append(pytest.param(content, id=f"{operation['operationId']}-{status}-{media}"))
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            found.append(pytest.param(content, id=f"{operation['operationId']}-body"))
    return found


@pytest.mark.slow
def test_the_description_is_valid() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator  # the import takes half a second

    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_every_call_is_described_once() -> None:
    served = [(route.method.lower(), route.path, route.name) for route in routes.ALL]
    described = [
        (method, path, operation["operationId"])
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]
    assert sorted(served) == sorted(described)
    assert len({name for _, _, name in served}) == len(served)


def test_every_code_is_described_with_its_own_fields() -> None:
    common = {"type", "title", "status", "detail", "code"}
    for code, row in PROBLEMS.items():
        schema = DOCUMENT["components"]["schemas"]["Problem" + code.title().replace("_", "")]
        starting = {"next_step"} if row.next_step is not None else set()
        starting |= set(UNKNOWN_ID) if starting and code not in NOT_OF_UNKNOWN_ID else set()
        assert set(schema["properties"]) == common | starting | set(row.extra)
        assert schema["properties"]["status"]["const"] == row.status


def test_each_response_that_asks_for_a_repetition_says_when() -> None:
    calls = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert all("429" in call["responses"] for call in calls)
    for status in ("429", "503"):
        answers = [call["responses"][status] for call in calls if status in call["responses"]]
        answers = [answer for answer in answers if "application/problem+json" in answer["content"]]
        assert [answer for answer in answers if "Retry-After" not in answer.get("headers", {})] == []


def test_introduction_and_tags_are_present() -> None:
    for operation in DESCRIBED.operations():
        assert operation["summary"]
        assert operation["tags"]
        assert operation["x-posd-socket"] in (["admin"], ["till", "admin"], ["till", "admin", "feed"])
        for row in operation.get("parameters", []):
            assert row["description"]
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field, inner in schema.get("properties", {}).items():
            said = {"description", "const"} & inner.keys() or "Line" in name
            assert said or name in ("Amount", "AskedAmount", "ExtraTaxes") or name.startswith("Problem"), (name, field)


@every("content", contents())
def test_examples_match_their_schemas(content: Any) -> None:
    values = [item["value"] for item in content.get("examples", {}).values() if "value" in item]
    values += [content["example"]] if "example" in content else []
    refs = [item["$ref"] for item in content.get("examples", {}).values() if "$ref" in item]
    values += [DOCUMENT["components"]["examples"][ref.rsplit("/", 1)[1]]["value"] for ref in refs]
    for value in values:
        assert DESCRIBED.errors(content["schema"], value) == []
    bytes_or_stream = "contentMediaType" in content["schema"]
    itself = content["schema"] == {"type": "object", "additionalProperties": {}}
    assert values or bytes_or_stream or itself


def test_the_daemon_loads_the_description_at_the_first_call_only() -> None:
    script = (
        "import sys, posd.daemon.main; print(*[name for name in sys.modules if name.startswith('posd.api.openapi')])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert run.stdout.split() == []


def test_the_command_prints_the_description() -> None:
    run = subprocess.run([sys.executable, "-m", "posd", "openapi"], capture_output=True, check=True)
    assert json.loads(run.stdout) == DOCUMENT
