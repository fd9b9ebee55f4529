"""Comparison of an older description of the API with a new one. It finds breaks (docs/reference/api-versions.md).

A client knows the old description. A response must have everything that the old description promises, and nothing that
it excludes. posd must accept every request that the old description permits, with the same meaning.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tests.support.described import OPEN_WORDS, Schema

#: Limits, in groups by the direction in which a limit becomes stricter. A new limit is stricter than no limit.
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
#: Keywords that must be equal in requests, since another value accepts other requests.
EXACT = ("pattern", "format", "contentEncoding")

#: Replaced pattern -> pattern that accepts at least the same texts.
WIDENED = {(r"^metadata\.[^\u0000\u0022\u005c]+$", r"^metadata\.")}

#: The name of a schema, if the schema has a name.
NAME = "x-name"
#: Mark of a union in a response. Later versions may add kinds to such a union.
OPEN_UNION = "x-posd-open"


def _more(schema: Schema) -> Any:
    """Return the schema of additional members. None means that any members are permitted."""
    return schema.get("additionalProperties", schema.get("unevaluatedProperties"))


class Comparison:
    """Comparison of two descriptions. `faults`: incompatible changes, each with its place."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self.old = old
        self.new = new
        self._found: dict[tuple[Any, ...], list[str]] = {}

    def faults(self) -> list[str]:
        """Return all breaks."""
        return list(dict.fromkeys(self._paths()))

    def _paths(self) -> Iterator[str]:
        for path, methods in self.old["paths"].items():
            if path not in self.new["paths"]:
                yield f"{path}: the path is gone"
                continue
            for method, old in methods.items():
                at = f"{method.upper()} {path}"
                if (new := self.new["paths"][path].get(method)) is None:
                    yield f"{at}: the method is gone"
                else:
                    yield from self._operation(at, old, new)

    def _operation(self, at: str, old: Schema, new: Schema) -> Iterator[str]:
        if old["operationId"] != new["operationId"]:
            yield f"{at}: its operationId is another"
        for socket in set(old["x-posd-socket"]) - set(new["x-posd-socket"]):
            yield f"{at}: it is no longer served on the {socket} socket"
        yield from self._parameters(at, old.get("parameters", []), new.get("parameters", []))
        yield from self._body(at, old.get("requestBody"), new.get("requestBody"))
        for status in new["responses"].keys() - old["responses"].keys():
            if status < "400":
                yield f"{at}: it answers {status}, which is new"
        for status, answer in old["responses"].items():
            if status not in new["responses"]:
                yield f"{at}: it no longer answers {status}"
            else:
                yield from self._answer(f"{at} {status}", answer, new["responses"][status])

    def _parameters(self, at: str, old: list[Schema], new: list[Schema]) -> Iterator[str]:
        before = {(row["in"], row["name"]): row for row in old}
        after = {(row["in"], row["name"]): row for row in new}
        for key, row in after.items():
            if row.get("required") and not before.get(key, {}).get("required"):
                yield f"{at}: parameter {key[1]} is required now"
        for key, row in before.items():
            if key not in after:
                yield f"{at}: parameter {key[1]} is gone"
            else:
                yield from self._asked(f"{at}?{key[1]}", row["schema"], after[key]["schema"])

    def _body(self, at: str, old: Schema | None, new: Schema | None) -> Iterator[str]:
        if old is None or new is None:
            if new is not None and new.get("required"):
                yield f"{at}: a body is required now"
            if old is not None:
                yield f"{at}: it takes no body any more"
            return
        if new.get("required") and not old.get("required"):
            yield f"{at}: a body is required now"
        for media, content in old["content"].items():
            if media not in new["content"]:
                yield f"{at}: it takes no {media} any more"
            else:
                yield from self._asked(f"{at} body", content["schema"], new["content"][media]["schema"])

    def _answer(self, at: str, old: Schema, new: Schema) -> Iterator[str]:
        for header in old.get("headers", {}).keys() - new.get("headers", {}).keys():
            yield f"{at}: header {header} is gone"
        for media, content in old["content"].items():
            if media not in new["content"]:
                yield f"{at}: no {media} any more"
                continue
            after = new["content"][media]
            yield from self._told(at, content["schema"], after["schema"])
            messages = {row["event"]: row for row in after.get("x-posd-messages", [])}
            for row in content.get("x-posd-messages", []):
                if row["event"] not in messages:
                    yield f"{at}: no message {row['event']} any more"
                else:
                    yield from self._told(f"{at} {row['event']}", row["data"], messages[row["event"]]["data"])

    def _told(self, at: str, old: Schema, new: Schema) -> Iterator[str]:
        """Yield the breaks for a client that reads responses of this schema."""
        before, after = list(branches(self.old, old)), list(branches(self.new, new))
        for branch in after:
            broken = min((self._once(self._tells, at, item, branch) for item in before), key=len, default=[])
            if broken and not (OPEN_UNION in old and not _alike(before, branch)):
                yield from broken
        for branch in before:
            if _tag(branch) is not None and not _alike(after, branch):
                yield f"{at}: {_tag(branch)} is gone"

    def _tells(self, at: str, old: Schema, new: Schema) -> Iterator[str]:
        if old.get("type") != new.get("type") and old.get("type") is not None:
            yield f"{at}: it can be {new.get('type', 'anything')} now, which it could not"
            return
        if _tag(old) != _tag(new):
            yield f"{at}: {_tag(new)} is new"
            return
        if "enum" in old and not set(map(str, new.get("enum", [new.get("const", "anything")]))) <= set(
            map(str, old["enum"])
        ):
            yield f"{at}: a word is new, of a closed kind"
        if "const" in old and old["const"] != new.get("const"):
            yield f"{at}: it was always {old['const']}"
        gone = set(old.get(OPEN_WORDS, [])) - set(new.get(OPEN_WORDS, new.get("enum", [])))
        if gone:
            yield f"{at}: the words {sorted(gone)} are gone"
        for name in EXACT:
            if name in old and old[name] != new.get(name):
                yield f"{at}: its {name} is another"
        for name in set(old.get("required", [])) - set(new.get("required", [])):
            yield f"{at}/{name}: it can be missing now"
        for name, schema in old.get("properties", {}).items():
            if name not in new.get("properties", {}):
                yield f"{at}/{name}: the field is gone"
            else:
                yield from self._told(f"{at}/{name}", schema, new["properties"][name])
        for name in ("items", "additionalProperties"):
            if name in old:
                yield from self._told(f"{at}/{name}", old[name], new.get(name, {}))

    def _asked(self, at: str, old: Schema, new: Schema) -> Iterator[str]:
        """Yield the breaks for a client that sends requests of this schema."""
        before, after = list(branches(self.old, old)), list(branches(self.new, new))
        if old.get("default", new.get("default")) != new.get("default"):
            yield f"{at}: its default is another"
        for branch in before:
            yield from min((self._once(self._takes, at, branch, item) for item in after), key=len, default=[])

    def _takes(self, at: str, old: Schema, new: Schema) -> Iterator[str]:
        if new.get("type") not in (None, old.get("type")) and (old.get("type"), new.get("type")) != (
            "integer",
            "number",
        ):
            yield f"{at}: it cannot be {old.get('type')} any more"
            return
        words = old.get("enum", [old["const"]] if "const" in old else None)
        taken = new.get("enum", [new["const"]] if "const" in new else None)
        if taken is not None and (words is None or not set(map(str, words)) <= set(map(str, taken))):
            yield f"{at}: a word is not taken any more"
        for word in set(new.get("not", {}).get("enum", [])) - set(old.get("not", {}).get("enum", [])):
            yield f"{at}: {word} is not taken any more"
        for name in UPPER:
            if name in new and new[name] < old.get(name, float("inf")):
                yield f"{at}: its {name} is lower"
        for name in LOWER:
            if name in new and new[name] > old.get(name, float("-inf")):
                yield f"{at}: its {name} is higher"
        for name in EXACT:
            if name in new and new[name] != old.get(name) and (old.get(name), new[name]) not in WIDENED:
                yield f"{at}: its {name} is another"
        for name in set(new.get("required", [])) - set(old.get("required", [])):
            yield f"{at}/{name}: it is required now"
        known = new.get("properties", {})
        for name, schema in old.get("properties", {}).items():
            if name in known:
                yield from self._asked(f"{at}/{name}", schema, known[name])
            elif _more(new) is False:
                yield f"{at}/{name}: the field is not taken any more"
        if _more(new) is False and _more(old) is not False:
            yield f"{at}: further members are not taken any more"
        elif isinstance(_more(new), dict) and _more(old) is not False:
            yield from self._asked(f"{at}/*", _more(old) or {}, _more(new))
        for name in ("items", "propertyNames"):
            if isinstance(new.get(name), dict) and old.get(name) is not False:
                yield from self._asked(f"{at}/{name}", old.get(name, {}), new[name])

    def _once(
        self, compare: Callable[[str, Schema, Schema], Iterator[str]], at: str, old: Schema, new: Schema
    ) -> list[str]:
        """Return the result of comparing two schemas.

        Named schemas are compared once, because they can contain themselves.
        """
        names = (compare.__name__, old.get(NAME), new.get(NAME))
        if None in names:
            return list(compare(at, old, new))
        if names not in self._found:
            self._found[names] = []
            self._found[names] = list(compare(at, old, new))
        return self._found[names]


def branches(document: Schema, schema: Schema) -> Iterator[Schema]:
    """Yield the possible kinds of a schema. Each kind has one type and no reference."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        rest = {word: value for word, value in schema.items() if word != "$ref"}
        yield from branches(document, {NAME: name} | document["components"]["schemas"][name] | rest)
    elif "anyOf" in schema:
        rest = {word: value for word, value in schema.items() if word not in ("anyOf", "discriminator", OPEN_UNION)}
        for item in schema["anyOf"]:
            yield from branches(document, item | rest)
    elif isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            yield from branches(document, schema | {"type": kind})
    elif schema.get("type") == "null":
        yield {"type": "null"}
    elif "const" in schema and "type" not in schema:
        yield schema | {"type": {str: "string", bool: "boolean", int: "integer"}[type(schema["const"])]}
    elif "enum" in schema:
        yield schema | {"enum": [word for word in schema["enum"] if word is not None]}
    else:
        yield schema


def _tag(branch: Schema) -> Any:
    """Return the value that identifies an object's kind, if any: the problem's code or the line's kind."""
    for name in ("code", "kind"):
        found = branch.get("properties", {}).get(name, {})
        if "const" in found or "enum" in found:
            return found.get("const") or tuple(found["enum"])
    return None


def _alike(others: list[Schema], branch: Schema) -> bool:
    return any((_tag(other), other.get("type")) == (_tag(branch), branch.get("type")) for other in others)
