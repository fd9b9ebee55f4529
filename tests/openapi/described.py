"""What the description says, as a test looks at it: strictly, so that what is not described is a fault."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from tests.openapi.compare import OPEN_WORDS, branches

Schema = dict[str, Any]


def strict(schema: Any) -> Any:
    """Return a schema that takes nothing but what it names: no further fields, no further words."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {("enum" if name == OPEN_WORDS else name): strict(value) for name, value in schema.items()}
    if found.get("type") == "object" and "properties" in found:
        found.setdefault("additionalProperties", False)
    if "enum" in found and isinstance(found.get("type"), list):
        found["enum"] = [*found["enum"], None]
    return found


class Described:
    """The description, and what was seen of it."""

    def __init__(self, document: Schema) -> None:
        self.document = document
        self._components = strict(document["components"])
        #: operation and status, operation and code, component and field: how often each was seen.
        self.statuses: Counter[tuple[str, str]] = Counter()
        self.codes: Counter[tuple[str, str]] = Counter()
        self.fields: Counter[str] = Counter()
        #: operation and code: the details of its problems.
        self.details: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), methods) for path, methods in document["paths"].items()
        ]

    def operations(self) -> Iterator[Schema]:
        """Yield the operations."""
        for methods in self.document["paths"].values():
            yield from methods.values()

    def operation(self, method: str, path: str) -> Schema | None:
        """Return what is described of a request."""
        for pattern, methods in self._paths:
            if pattern.fullmatch(path.partition("?")[0]):
                found: Schema | None = methods.get(method.lower())
                return found
        return None

    def errors(self, schema: Schema, value: Any) -> list[str]:
        """Return what is wrong with a value, looked at strictly."""
        whole = strict(schema) | {"components": self._components}
        validator = Draft202012Validator(whole, format_checker=FormatChecker())
        return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]

    def note(self, method: str, path: str, status: int, media: str, body: bytes) -> Any:
        """Hold an answer against the description, and note what was seen; return its document."""
        operation = self.operation(method, path)
        assert operation is not None, f"{method} {path} is served, and not described"
        name = operation["operationId"]
        assert str(status) in operation["responses"], f"{name} answered {status}: {body[:500]!r}"
        content = operation["responses"][str(status)]["content"]
        kinds = {kind.partition(";")[0]: value for kind, value in content.items()}
        assert media.partition(";")[0] in kinds, f"{name} answered {status} as {media}"
        self.statuses[name, str(status)] += 1
        if "json" not in media:
            self.statuses[name, media.partition(";")[0]] += 1
            return None
        value = json.loads(body)
        schema = kinds[media]["schema"]
        assert self.errors(schema, value) == [], (method, path, status, body[:2000])
        if "problem" in media:
            self.codes[name, value["code"]] += 1
            self.details[name, value["code"]].add(value["detail"])
        self._walk(schema, value)
        return value

    def message(self, data: Schema, value: Any) -> None:
        """Hold the data of a message against its description."""
        assert self.errors(data, value) == [], value
        self._walk(data, value)

    def _walk(self, schema: Schema, value: Any) -> None:
        """Note the fields that are not null."""
        kinds = [kind for kind in branches(self.document, schema) if not self.errors(kind, value)]
        for kind in kinds[:1]:
            if isinstance(value, dict):
                for name, inner in kind.get("properties", {}).items():
                    if value.get(name) is not None:
                        self.fields[f"{kind['x-name']}.{name}"] += 1
                        self._walk(inner, value[name])
            elif isinstance(value, list) and "items" in kind:
                for item in value:
                    self._walk(kind["items"], item)

    def answered_fields(self) -> set[str]:
        """Return every field that an answer is described to have."""
        found: set[str] = set()
        for operation in self.operations():
            for answer in operation["responses"].values():
                for content in answer["content"].values():
                    self._collect(content["schema"], found, set())
                    for message in content.get("x-posd-messages", []):
                        self._collect(message["data"], found, set())
        return found

    def _collect(self, schema: Schema, found: set[str], inside: set[str]) -> None:
        for kind in branches(self.document, schema):
            name = kind.get("x-name", "")
            if name in inside:
                continue
            for field, inner in kind.get("properties", {}).items():
                found.add(f"{name}.{field}")
                self._collect(inner, found, inside | {name})
            if "items" in kind:
                self._collect(kind["items"], found, inside)
