"""Strict check of responses against the description of the API. Any undescribed part is a fault.

`Daemon.call` checks each response.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema_rs import Draft202012, Draft202012Validator, Registry

from posd.api.openapi import document

Schema = dict[str, Any]

#: Keyword of a type to which later versions may add words.
OPEN_WORDS = "x-extensible-enum"
#: Prefix of references within the description.
BASE = "urn:posd"


def strict(schema: Any) -> Any:
    """Return a schema that allows no further fields and no further words. Each reference in the schema has BASE as
    prefix."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {("enum" if name == OPEN_WORDS else name): strict(value) for name, value in schema.items()}
    if isinstance(found.get("$ref"), str):
        found["$ref"] = f"{BASE}{found['$ref']}"
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    if "enum" in found and isinstance(found.get("type"), list):
        found["enum"] = [*found["enum"], None]
    return found


class Described:
    """The description of the local API."""

    def __init__(self, document: Schema) -> None:
        self.document = document
        components = {"components": strict(document["components"])}
        self._registry = Registry([(BASE, components)], draft=Draft202012)
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), methods) for path, methods in document["paths"].items()
        ]
        #: (operation, status, media type) -> validator.
        self._validators: dict[tuple[str, int, str], Draft202012Validator] = {}

    def operations(self) -> Iterator[Schema]:
        for methods in self.document["paths"].values():
            yield from methods.values()

    def operation(self, method: str, path: str) -> Schema | None:
        """Return the description of a request."""
        for pattern, methods in self._paths:
            if pattern.fullmatch(path.partition("?")[0]):
                return methods.get(method.lower())
        return None

    def errors(self, schema: Schema, value: Any) -> list[str]:
        """Return the faults of a value in a strict check."""
        return _faults(self._validator(schema), value)

    def _validator(self, schema: Schema) -> Draft202012Validator:
        return Draft202012Validator(strict(schema), registry=self._registry, validate_formats=True)

    def hold(self, method: str, path: str, status: int, media: str, body: bytes) -> None:
        """Check a response against the description. Raise AssertionError. Responses with amounts as texts and responses
        to unknown calls are not checked.
        """
        operation = self.operation(method, path)
        if operation is None or "amounts=text" in path or (status == 404 and b'"there is nothing at ' in body):
            return
        name = operation["operationId"]
        assert str(status) in operation["responses"], f"{name} answered {status}: {body[:500]!r}"
        content = {kind.partition(";")[0]: of for kind, of in operation["responses"][str(status)]["content"].items()}
        kind = media.partition(";")[0]
        assert kind in content, f"{name} answered {status} as {media}"
        if "json" in kind:
            key = (name, status, kind)
            if key not in self._validators:  # compiling takes longer than the check of a response
                self._validators[key] = self._validator(content[kind]["schema"])
            faults = _faults(self._validators[key], json.loads(body))
            assert faults == [], (method, path, status, body[:2000])


def _faults(validator: Draft202012Validator, value: Any) -> list[str]:
    return [f"{error.instance_path}: {error.message[:300]}" for error in validator.iter_errors(value)]


@cache
def described() -> Described:
    """Return the description of this posd."""
    return Described(json.loads(document()))
