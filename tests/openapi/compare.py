"""Comparison of an older description of the API with a new one. It finds breaks (docs/reference/api-versions.md).

A client knows the old description. A response must have everything that the old description promises, and nothing that
it excludes. posd must accept every request that the old description permits, with the same meaning.
"""

from collections.abc import Iterator
from typing import Any

from tests.rig.described import OPEN_WORDS, Schema

#: Limits, in groups by the direction in which a limit becomes stricter. A new limit is stricter than no limit.
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
#: Keywords that must be equal, since another value permits other values.
EXACT = ("pattern", "format", "contentEncoding")

#: Replaced pattern -> pattern that accepts at least the same texts.
WIDENED = {(r"^metadata\.[^\u0000\u0022\u005c]+$", r"^metadata\.")}

#: The name of a schema, if the schema has a name.
NAME = "x-name"
#: Mark of a union in a response. Later versions may add kinds to such a union.
OPEN_UNION = "x-posd-open"
#: Message of a stream -> schema.
MESSAGES = "x-posd-messages"


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
            for method, old in methods.items():
                at = f"{method.upper()} {path}"
                if (new := self.new["paths"].get(path, {}).get(method)) is None:
                    yield f"{at}: the call is gone"
                else:
                    yield from self._operation(at, old, new)

    def _operation(self, at: str, old: Schema, new: Schema) -> Iterator[str]:
        if old["operationId"] != new["operationId"]:
            yield f"{at}: its operationId is another"
        for socket in set(old["x-posd-socket"]) - set(new["x-posd-socket"]):
            yield f"{at}: it is no longer served on the {socket} socket"
        before, after = (_asked(operation) for operation in (old, new))
        for name, row in after.items():
            if row.get("required") and not before.get(name, {}).get("required"):
                yield f"{at}: {name} is required now"
        for name, row in before.items():
            yield from self._contents(f"{at}?{name}", row["content"], after.get(name, {"content": {}})["content"])
        for status in new["responses"].keys() - old["responses"].keys():
            if status < "400":
                yield f"{at}: it answers {status}, which is new"
        for status, answer in old["responses"].items():
            told = new["responses"].get(status, {"content": {}})
            for header in answer.get("headers", {}).keys() - told.get("headers", {}).keys():
                yield f"{at} {status}: header {header} is gone"
            yield from self._contents(f"{at} {status}", answer["content"], told["content"], told=True)

    def _contents(self, at: str, old: Schema, new: Schema, *, told: bool = False) -> Iterator[str]:
        """Compare the schemas of media types, or of the messages of a stream. `told`: posd sends these contents."""
        for media, content in old.items():
            if media not in new:
                yield f"{at}: no {media} any more"
                continue
            yield from self._schema(at, content["schema"], new[media]["schema"], told)
            before, after = (
                {row["event"]: {"schema": row["data"]} for row in of.get(MESSAGES, [])} for of in (content, new[media])
            )
            yield from self._contents(at, before, after, told=told)

    def _schema(self, at: str, old: Schema, new: Schema, told: bool) -> Iterator[str]:
        """Yield the breaks for a client that reads values of this schema (`told`), or sends values."""
        before, after = list(branches(self.old, old)), list(branches(self.new, new))
        if told:
            gone = [_tag(branch) for branch in before if _tag(branch) is not None and not _alike(after, branch)]
            yield from (f"{at}: {tag} is gone" for tag in gone)
        elif old.get("default", new.get("default")) != new.get("default"):
            yield f"{at}: its default is another"
        for branch in after if told else before:
            if not (told and OPEN_UNION in old and not _alike(before, branch)):
                others = before if told else after
                yield from min((self._once(at, branch, item, told) for item in others), key=len, default=[])

    def _once(self, at: str, small: Schema, large: Schema, told: bool) -> list[str]:
        """Return the result of comparing two schemas. Named schemas are compared once, because they can contain
        themselves.
        """
        names = (told, small.get(NAME), large.get(NAME))
        if None in names:
            return list(self._within(at, small, large, told))
        if names not in self._found:
            self._found[names] = []
            self._found[names] = list(self._within(at, small, large, told))
        return self._found[names]

    def _within(self, at: str, small: Schema, large: Schema, told: bool) -> Iterator[str]:
        """Yield the reasons why a value of one schema is not a value of another. In a response the new schema must be
        within the old one, in a request the old schema within the new one.
        """
        kinds = small.get("type"), large.get("type")
        if kinds[1] not in (None, kinds[0]) and kinds != ("integer", "number"):
            yield f"{at}: {kinds[0]} is not {kinds[1]}"
            return
        words, known = _words(small), _words(large)
        if known is not None and (words is None or not words <= known):
            yield f"{at}: a word is new, of a closed kind" if told else f"{at}: a word is not taken any more"
        for word in set(large.get("not", {}).get("enum", [])) - set(small.get("not", {}).get("enum", [])):
            yield f"{at}: {word} is not taken any more"
        for name in large.keys() & {*UPPER, *LOWER} if not told else ():
            sign = 1 if name in UPPER else -1
            if sign * large[name] < sign * small.get(name, sign * float("inf")):
                yield f"{at}: its {name} is stricter"
        for name in EXACT:
            if name in large and large[name] != small.get(name) and (small.get(name), large[name]) not in WIDENED:
                yield f"{at}: its {name} is another"
        for name in set(large.get("required", [])) - set(small.get("required", [])):
            yield f"{at}/{name}: it can be missing now" if told else f"{at}/{name}: it is required now"
        mine, theirs = small.get("properties", {}), large.get("properties", {})
        inner = [(name, schema, theirs[name]) for name, schema in mine.items() if name in theirs]
        gone = theirs.keys() - mine.keys() if told else mine.keys() - theirs.keys() if _more(large) is False else set()
        if told:
            gone |= set(large.get(OPEN_WORDS, [])) - set(small.get(OPEN_WORDS, small.get("enum", [])))
        yield from (f"{at}/{name}: it is gone" for name in gone)
        if _more(large) is False and _more(small) is not False:
            yield f"{at}: further members are not taken any more"
        elif isinstance(_more(large), dict) and _more(small) is not False:
            inner.append(("*", _more(small) or {}, _more(large)))
        parts = [name for name in ("items", "propertyNames") if isinstance(large.get(name), dict)]
        inner += [(name, small.get(name, {}), large[name]) for name in parts if small.get(name) is not False]
        for name, one, other in inner:
            yield from self._schema(f"{at}/{name}", *((other, one) if told else (one, other)), told)


def _asked(operation: Schema) -> dict[str, Schema]:
    """Return the parameters and the body of a request by name, each with its contents."""
    rows = {f"{row['in']} {row['name']}": row | {"content": {"": row}} for row in operation.get("parameters", [])}
    return rows | ({"body": operation["requestBody"]} if "requestBody" in operation else {})


def _more(schema: Schema) -> Any:
    """Return the schema of additional members. None means that any members are permitted."""
    return schema.get("additionalProperties", schema.get("unevaluatedProperties"))


def _words(schema: Schema) -> set[str] | None:
    """Return the only values of a schema as texts. None means that other values are permitted."""
    words = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return None if words is None else set(map(str, words))


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
