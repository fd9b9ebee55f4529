"""The comparison of two descriptions, with a table of permitted and forbidden changes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.openapi import released
from tests.openapi.compare import Comparison
from tests.rig.tables import every

Change = Callable[[dict[str, Any]], Any]

START = "/v1/transactions/{client_transaction_id}"


def schema(document: dict[str, Any], name: str) -> Any:
    return document["components"]["schemas"][name]


def field(document: dict[str, Any], name: str, member: str) -> Any:
    return schema(document, name)["properties"][member]


def operation(document: dict[str, Any], path: str = START, method: str = "get") -> Any:
    return document["paths"][path][method]


def drop(mapping: Any, name: Any) -> None:
    del mapping[name]


ALLOWED: dict[str, Change] = {
    "nothing": lambda new: None,
    "a path": lambda new: new["paths"].update({"/v1/more": operation(new)}),
    "a method": lambda new: new["paths"][START].update({"delete": operation(new)}),
    "a field of a response": lambda new: schema(new, "Transaction")["properties"].update({"more": {"type": "string"}}),
    "an optional field of a request": lambda new: schema(new, "StartRequest")["properties"].update({"more": {}}),
    "an optional parameter": lambda new: operation(new, "/v1/feed")["parameters"].append(
        {"name": "more", "in": "query", "schema": {}}
    ),
    "a value of an open enum": lambda new: schema(new, "AttentionCode")["x-extensible-enum"].append("more"),
    "a value of a request's enum": lambda new: schema(new, "AskedOperationType")["enum"].append("more"),
    "a problem code": lambda new: operation(new)["responses"]["410"].update(
        content={
            "application/problem+json": {
                "schema": {
                    "x-posd-open": True,
                    "anyOf": [
                        {"$ref": "#/components/schemas/ProblemPruned"},
                        {"$ref": "#/components/schemas/ProblemQueueFull"},
                    ],
                }
            }
        }
    ),
    "an error status": lambda new: operation(new)["responses"].update({"409": operation(new)["responses"]["410"]}),
    "a higher limit of a request": lambda new: field(new, "StartRequest", "sale").update(maxLength=256),
    "a field that can no longer be null": lambda new: field(new, "Transaction", "sale").update(type="string"),
    "a field that is no longer optional": lambda new: schema(new, "Evidence")["required"].append("event_id"),
    "a kind of line in a history": lambda new: field(new, "History", "history")["items"]["anyOf"].append(
        {"type": "object", "properties": {"kind": {"const": "more"}}, "required": ["kind"]}
    ),
    "another description": lambda new: schema(new, "Transaction").update(description="another"),
    "another socket": lambda new: operation(new, "/v1/prune").update({"x-posd-socket": ["till", "admin"]}),
    "a body that may be missing": lambda new: operation(new, method="put")["requestBody"].update(required=False),
}

FORBIDDEN: dict[str, Change] = {
    "no path": lambda new: drop(new["paths"], "/v1/feed"),
    "no method": lambda new: drop(new["paths"][START], "put"),
    "another operationId": lambda new: operation(new).update(operationId="other"),
    "not on the till's socket": lambda new: operation(new).update({"x-posd-socket": ["admin"]}),
    "no parameter": lambda new: operation(new, "/v1/feed")["parameters"].pop(0),
    "a required parameter": lambda new: operation(new, "/v1/feed")["parameters"][0].update(required=True),
    "a new parameter that is required": lambda new: operation(new, "/v1/feed")["parameters"].append(
        {"name": "more", "in": "query", "required": True, "schema": {}}
    ),
    "a lower limit of a parameter": lambda new: operation(new, "/v1/feed")["parameters"][1]["schema"].update(maximum=9),
    "another default": lambda new: operation(new, "/v1/feed")["parameters"][1]["schema"].update(default=9),
    "no status": lambda new: drop(operation(new)["responses"], "410"),
    "a new success status": lambda new: operation(new)["responses"].update({"202": operation(new)["responses"]["200"]}),
    "no code": lambda new: operation(new, f"{START}/abort", "post")["responses"]["409"]["content"][
        "application/problem+json"
    ]["schema"]["anyOf"].pop(0),
    "no field of a code": lambda new: drop(schema(new, "ProblemTerminalBusy")["properties"], "blocking_transaction"),
    "no stream": lambda new: drop(operation(new, "/v1/feed")["responses"]["200"]["content"], "text/event-stream"),
    "no message of a stream": lambda new: operation(new, f"{START}/events")["responses"]["200"]["content"][
        "text/event-stream"
    ]["x-posd-messages"].pop(),
    "no header": lambda new: drop(operation(new)["responses"]["503"], "headers"),
    "no field of a response": lambda new: drop(schema(new, "Transaction")["properties"], "sale"),
    "a field that can be missing": lambda new: schema(new, "Transaction")["required"].remove("sale"),
    "a field that can be null": lambda new: field(new, "Transaction", "terminal").update(type=["string", "null"]),
    "a field of another type": lambda new: field(new, "Event", "seq").update(type="string"),
    "a field of another format": lambda new: field(new, "Event", "received_at").update(format="date"),
    "another type of items": lambda new: field(new, "Terminals", "terminals").update(items={"type": "string"}),
    "a value of a closed enum": lambda new: schema(new, "NextStep")["enum"].append("more"),
    "no value of an open enum": lambda new: schema(new, "AttentionCode")["x-extensible-enum"].pop(),
    "an open enum that was closed": lambda new: schema(new, "Result").update(
        {"x-extensible-enum": schema(new, "Result").pop("enum")}
    ),
    "no kind of line in a history": lambda new: field(new, "History", "history")["items"]["anyOf"].pop(0),
    "no field of a request": lambda new: drop(schema(new, "StartRequest")["properties"], "sale"),
    "a required field": lambda new: schema(new, "StartRequest").update(required=["terminal"]),
    "a lower limit of a request": lambda new: field(new, "StartRequest", "sale").update(maxLength=64),
    "a new limit": lambda new: field(new, "StartRequest", "metadata").update(maxProperties=5),
    "a value that is no longer accepted": lambda new: schema(new, "AskedOperationType")["enum"].pop(0),
    "null that is no longer accepted": lambda new: field(new, "StartRequest", "sale").update(type="string"),
    "a name that is no longer accepted": lambda new: field(new, "StartRequest", "options")["propertyNames"]["not"][
        "enum"
    ].append("more"),
    "another pattern": lambda new: field(new, "PrintRequest", "reprint_of").update(pattern="^a$"),
    "further members are refused": lambda new: schema(new, "AskedAmount").update(additionalProperties=False),
    "further members of another type": lambda new: schema(new, "AskedAmount").update(
        unevaluatedProperties={"type": "boolean"}
    ),
    "a required body": lambda new: operation(new, "/v1/prune", "post")["requestBody"].update(required=True),
    "no body": lambda new: drop(operation(new, method="put"), "requestBody"),
}


def faults(change: Change) -> list[str]:
    old = released.today()
    new = copy.deepcopy(old)
    change(new)
    return Comparison(old, new).faults()


@pytest.mark.slow
@every("name", ALLOWED)
def test_permitted_additions_are_not_breaks(name: str) -> None:
    assert faults(ALLOWED[name]) == []


@pytest.mark.slow
@every("name", FORBIDDEN)
def test_forbidden_changes_are_breaks(name: str) -> None:
    assert faults(FORBIDDEN[name])


def test_the_present_description_breaks_no_release() -> None:
    assert Comparison(released.read(), released.today()).faults() == []
