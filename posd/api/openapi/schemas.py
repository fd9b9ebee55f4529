"""Types as JSON schemas (Draft 2020-12): what is answered, and what is asked for.

In an answer every field is there, unless it can be unset or its struct omits defaults; words of an open kind may become
more (`x-extensible-enum`). In a request nothing is taken that is not described.
"""

import inspect
from decimal import Decimal
from enum import Enum, EnumMeta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, UnsetType

from posd.base.json_types import Wire
from posd.payments.model import NextStep, Result
from posd.printing.model import PrintStatus
from posd.records.model import Phase

Schema = dict[str, Any]

#: Words of these never become more: a till decides by them.
CLOSED = frozenset({Result, Phase, NextStep, PrintStatus})

PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Decimal: {"type": "number", "format": "decimal"},
    NoneType: {"type": "null"},
    Any: {},
    object: {},
    msgspec.Raw: {},
}

#: Limits and words of msgspec's, as JSON schema names them.
KEYWORDS = {
    "title": "title",
    "description": "description",
    "examples": "examples",
    "pattern": "pattern",
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "min_length": "minLength",
    "max_length": "maxLength",
}


class Schemas:
    """Makes schemas; those of structs, and of words in answers, are kept under their names. `named`: name -> type."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.components: dict[str, Schema] = {}
        self._named = named
        self._made: dict[str, tuple[Any, bool]] = {}

    def of(self, kind: Any, *, asked: bool = False) -> Schema:
        """Return the schema of a type; `asked`: in a request."""
        if get_origin(kind) is Annotated:
            return self._annotated(kind, asked=asked)
        if isinstance(kind, str):
            return self.of(eval(kind, dict(self._named)), asked=asked)  # noqa: S307 - text of our own
        if kind in PLAIN:
            return dict(PLAIN[kind])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self._union([item for item in arguments if item is not UnsetType], asked=asked)
        if origin is Literal:
            return _words([getattr(item, "value", item) for item in arguments])
        if origin in (list, tuple):
            return {"type": "array", "items": self.of(arguments[0], asked=asked)}
        if origin is dict:
            members = self.of(arguments[1], asked=asked)
            return {"type": "object"} | ({"additionalProperties": members} if members else {})
        if isinstance(kind, EnumMeta):
            words = _words([item.value for item in list[Enum](kind)])
            return words if asked else self._component(kind, words if kind in CLOSED else _opened(words))
        return self._struct(kind, asked=asked)

    def _annotated(self, kind: Any, *, asked: bool) -> Schema:
        base, *notes = get_args(kind)
        wires = [note for note in notes if isinstance(note, Wire)]
        schema = self.of(wires[-1].type if wires else base, asked=asked)
        for note in notes:
            if isinstance(note, Meta):
                schema |= {word: found for name, word in KEYWORDS.items() if (found := getattr(note, name)) is not None}
                schema |= note.extra_json_schema or {}
                if note.extra and note.extra.get("open"):
                    schema = _opened(schema)
        return schema

    def _union(self, kinds: list[Any], *, asked: bool) -> Schema:
        if len(kinds) == 1:
            return self.of(kinds[0], asked=asked)
        schemas = [self.of(kind, asked=asked) for kind in kinds]
        null = {"type": "null"}
        if len(schemas) == 2 and null in schemas:
            (other,) = (schema for schema in schemas if schema != null)
            if isinstance(other.get("type"), str) and "const" not in other:
                more = {"enum": [*other["enum"], None]} if "enum" in other else {}
                return other | {"type": [other["type"], "null"]} | more
        return {"anyOf": schemas}

    def _component(self, kind: Any, schema: Schema, *, asked: bool = False) -> Schema:
        name = kind.__name__
        if self._made.setdefault(name, (kind, asked)) != (kind, asked):
            raise TypeError(f"two kinds of {name} would have one name in the description")
        self.components[name] = schema
        return {"$ref": f"#/components/schemas/{name}"}

    def _struct(self, kind: Any, *, asked: bool) -> Schema:
        name = kind.__name__
        if name not in self._made:
            self._made[name] = (kind, asked)
            self.components[name] = {}  # its place; it can stand in itself
            self.components[name] = self._object(kind, asked=asked)
        return self._component(kind, self.components[name], asked=asked)

    def _object(self, kind: Any, *, asked: bool) -> Schema:
        hints = get_type_hints(kind, include_extras=True)
        omits = kind.__struct_config__.omit_defaults and not asked
        properties: Schema = {}
        if (tag := kind.__struct_config__.tag_field) is not None:
            properties[tag] = {"const": kind.__struct_config__.tag, "description": "which kind it is"}
        required = list(properties)
        for field in msgspec.structs.fields(kind):
            hint = hints[field.name]
            has_default = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
            if omits and has_default:
                hint = _without_none(hint)
            properties[field.encode_name] = self.of(hint, asked=asked)
            wire = next((note for note in get_args(hint)[1:] if isinstance(note, Wire)), None)
            if asked:
                needed = not has_default if wire is None else wire.required
            else:
                needed = not (omits and has_default) and not _can_be_unset(hint)
            required += [field.encode_name] if needed else []
        schema: Schema = {
            "type": "object",
            "description": _first_paragraph(kind.__doc__),
            "properties": properties,
        }
        schema |= {"required": required} if required else {}
        if (more := getattr(kind, "MORE", None)) is not None:
            return schema | {"additionalProperties": self.of(more, asked=asked)}
        return schema | ({"additionalProperties": False} if asked else {})


def _first_paragraph(words: str) -> str:
    """Return what a docstring says to everybody; what follows is for who reads the code."""
    return " ".join(inspect.cleandoc(words).partition("\n\n")[0].split())


def _words(words: list[Any]) -> Schema:
    if len(words) == 1:
        return {"const": words[0]}
    return {"type": "string", "enum": words}


def _opened(schema: Schema) -> Schema:
    if "anyOf" in schema:
        return schema | {"x-posd-open": True}
    return {("x-extensible-enum" if word == "enum" else word): value for word, value in schema.items()}


def _without_none(hint: Any) -> Any:
    base, *notes = get_args(hint)
    kinds = [kind for kind in get_args(base) if kind is not NoneType]
    return Annotated[(Union[tuple(kinds)], *notes)]  # noqa: UP007 - of a list


def _can_be_unset(hint: Any) -> bool:
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return UnsetType in get_args(base)
