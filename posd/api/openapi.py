"""Description of the local API (OpenAPI 3.1), generated from the table of its calls and the types of its documents.

The description does not depend on the configuration. This module is loaded by the first request for the description,
and not at the daemon's start.
"""

import inspect
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum, EnumMeta
from functools import cache
from importlib import resources
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, UnsetType

from posd import __version__
from posd.api import routes
from posd.api.shifts import Shift, ShiftRequest, Shifts
from posd.base.json_types import WireFormat, decode, encode
from posd.base.problems import NOT_OF_UNKNOWN_ID, PROBLEMS, UNKNOWN_ID, Problem, StartStep
from posd.calls import parameters
from posd.calls.app import STARTS
from posd.calls.parameters import METADATA, PLACE, AnswerSpec, Parameter, Route
from posd.calls.streams import STREAM, Ended
from posd.payments.documents import TransactionOutcome
from posd.payments.model import NextStep, Result
from posd.payments.report_documents import PaymentReport
from posd.printing.documents import PrintJob
from posd.printing.model import PrintStatus
from posd.records.model import Line, Phase

# Types as JSON schemas (Draft 2020-12), for responses and requests. A response has every field, unless the field can be
# unset or its struct omits defaults. Later versions may add words to an open set (`x-extensible-enum`). A request may
# have only described fields.

Schema = dict[str, Any]

#: Enumerations that never get new words, because a till decides by them.
CLOSED = frozenset({Result, Phase, NextStep, PrintStatus})

PLAIN: dict[Any, Schema] = {
    **{kind: msgspec.json.schema(kind) for kind in (str, int, float, bool, NoneType, Any, msgspec.Raw)},
    Decimal: {"type": "number", "format": "decimal"},
    object: {},
}

#: JSON type of a schema -> Python type with which msgspec writes its constraints. Any other JSON type has those of
#: `str`.
CONSTRAINED = {"array": list, "integer": int, "number": float}


#: Types of the names in the table of calls. The table has only names, because only this module imports the types.
NAMED: dict[str, Any] = {
    "TransactionOutcome | None": TransactionOutcome | None,
    "PrintJob | None": PrintJob | None,
    "PaymentReport": PaymentReport,
    "Shift": Shift,
    "Shifts": Shifts,
    "ShiftRequest": ShiftRequest,
}


class Schemas:
    """Builder of schemas. Schemas of structs and enumerations are named components."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._made: dict[str, tuple[Any, bool]] = {}

    def of(self, kind: Any, *, asked: bool = False) -> Schema:
        """Return the schema of a type. `asked`: whether the type is part of a request."""
        if get_origin(kind) is Annotated:
            return self._annotated(kind, asked=asked)
        if isinstance(kind, str):
            return self.of(NAMED[kind], asked=asked)
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
            # `additionalProperties` is stated even if any value is allowed, because otherwise generators for TypeScript
            # make an object without members.
            return {"type": "object", "additionalProperties": self.of(arguments[1], asked=asked)}
        if isinstance(kind, EnumMeta):
            words = _words([item.value for item in list[Enum](kind)])
            if asked and kind not in CLOSED:
                return self._component(kind, words, name=f"Asked{kind.__name__}")
            return self._component(kind, words if kind in CLOSED else _opened(words))
        return self._struct(kind, asked=asked)

    def _annotated(self, kind: Any, *, asked: bool) -> Schema:
        base, *notes = get_args(kind)
        wires = [note for note in notes if isinstance(note, WireFormat)]
        schema = self.of(wires[-1].type if wires else base, asked=asked)
        for note in notes:
            if isinstance(note, Meta):
                like = CONSTRAINED.get(str(schema.get("type")), str)
                words = msgspec.json.schema(Annotated[like, note])
                schema |= {word: words[word] for word in words if word not in ("type", "items")}
                extra = note.extra or {}
                if extra.get("open"):
                    schema = _opened(schema)
                if "later" in extra:
                    schema = self._with_later(schema, extra["later"])
                if "name" in extra:
                    schema = self._component(base, schema, asked=asked, name=extra["name"])
        return schema

    def _with_later(self, schema: Schema, name: str) -> Schema:
        """Return the union of entries, with one more kind, called `name`, for entries of later versions."""
        kinds = [self.components[item["$ref"].rpartition("/")[2]]["properties"]["kind"] for item in schema["anyOf"]]
        known = [word for kind in kinds for word in kind.get("enum", [kind.get("const")])]
        later = self.object(Line, asked=False) | {"description": "A line of a kind that this description lacks"}
        later["properties"] |= {"kind": {"type": "string", "not": {"enum": known}, "description": "which kind it is"}}
        self.components[name] = later | {"required": list(later["properties"])}
        return {"anyOf": [*schema["anyOf"], {"$ref": f"#/components/schemas/{name}"}], "x-posd-open": True}

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

    def _component(self, kind: Any, schema: Schema, *, asked: bool = False, name: str = "") -> Schema:
        name = name or kind.__name__
        if self._made.setdefault(name, (kind, asked)) != (kind, asked):
            raise TypeError(f"two kinds of {name} would have one name in the description")
        self.components[name] = schema
        return {"$ref": f"#/components/schemas/{name}"}

    def _struct(self, kind: Any, *, asked: bool) -> Schema:
        name = kind.__name__
        if name not in self._made:
            self._made[name] = (kind, asked)
            self.components[name] = {}  # reserve the name first, because the type can contain itself
            self.components[name] = self.object(kind, asked=asked)
        return self._component(kind, self.components[name], asked=asked)

    def object(self, kind: Any, *, asked: bool) -> Schema:
        """Return the schema of a struct itself, and not a reference to it."""
        hints = get_type_hints(kind, include_extras=True)
        omits = kind.__struct_config__.omit_defaults and not asked
        properties: Schema = {}
        if (tag := kind.__struct_config__.tag_field) is not None:
            properties[tag] = _constant(kind.__struct_config__.tag) | {"description": "which kind it is"}
        required = list(properties)
        for field in msgspec.structs.fields(kind):
            hint = hints[field.name]
            has_default = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
            if omits and has_default:
                hint = _without_none(hint)
            properties[field.encode_name] = self.of(hint, asked=asked)
            wire = next((note for note in get_args(hint)[1:] if isinstance(note, WireFormat)), None)
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
            # With `unevaluatedProperties`, generators make no index signature for a request body. So the compiler finds
            # a misspelt field.
            word = "unevaluatedProperties" if asked else "additionalProperties"
            return schema | {word: self.of(more, asked=asked)}
        return schema | ({"additionalProperties": False} if asked else {})


def _first_paragraph(words: str) -> str:
    """Return the first paragraph of a docstring. The other paragraphs are for readers of the code."""
    return " ".join(inspect.cleandoc(words).partition("\n\n")[0].split())


def _words(words: list[Any]) -> Schema:
    if len(words) == 1:
        return _constant(words[0])
    return {"type": "string", "enum": words}


def _constant(value: str | int) -> Schema:
    """Return the schema of one value.

    It includes the type of the value, because generators of clients require the type.
    """
    return PLAIN[type(value)] | {"const": value}


def _opened(schema: Schema) -> Schema:
    return {("x-extensible-enum" if word == "enum" else word): value for word, value in schema.items()}


def _without_none(hint: Any) -> Any:
    base, *notes = get_args(hint)
    kinds = [kind for kind in get_args(base) if kind is not NoneType]
    return Annotated[(Union[tuple(kinds)], *notes)]  # noqa: UP007 - of a list


def _can_be_unset(hint: Any) -> bool:
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return UnsetType in get_args(base)


# Problems in the description: one schema for each code, and the refusals of a call by status.

MEDIA = "application/problem+json"

_RETRY_AFTER: Schema = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
#: Headers of responses, by status.
HEADERS: dict[int, Schema] = {
    405: {"Allow": {"description": "the methods of the path", "schema": {"type": "string"}}},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}


def name(code: str, *, printing: bool = False) -> str:
    """Return the name of a problem's schema. `printing`: for the calls on print jobs."""
    own = printing and PROBLEMS[code].print_extra
    return ("ProblemPrint" if own else "Problem") + "".join(word.capitalize() for word in code.split("_"))


#: Schema of a problem with an unknown code. This schema is the last alternative of each refusal, so that a generated
#: client can read codes of a later version.
LATER = "Problem"


def schema(schemas: Schemas, code: str, *, printing: bool = False) -> Schema:
    """Return the schema of a problem's code. `printing`: for the calls on print jobs."""
    row = PROBLEMS[code]
    own = {field: schemas.of(kind) for field, kind in (row.print_extra if printing else row.extra).items()}
    required = (*Ended.__struct_fields__, *(() if row.optional else own))
    if row.next_step is not None:
        own |= _next_step(_constant(row.next_step.value))
        own |= {} if code in NOT_OF_UNKNOWN_ID else _unknown_id(schemas)
    values: dict[str, str | int] = {"type": f"urn:posd:problem:{code}", "status": row.status, "code": code}
    members = {name: _constant(value) for name, value in values.items()}
    words = row.title if row.title.lower() == row.when.lower() else f"{row.title}: {row.when}"
    return _problem(schemas, words, members, own, required)


def later_schema(schemas: Schemas) -> Schema:
    """Return the schema of problems with none of the codes of `PROBLEMS`."""
    steps = _next_step(_opened(_words([step.value for step in StartStep])))
    words = "A problem with a code that this description lacks: a later posd may have more"
    code = {"code": {"not": {"enum": list(PROBLEMS)}}}
    return _problem(schemas, words, code, steps | _unknown_id(schemas), Ended.__struct_fields__)


def _problem(schemas: Schemas, words: str, members: Schema, own: Schema, required: Sequence[str]) -> Schema:
    """Return the schema of a problem. `members`: values of the members that every problem has. `own`: other members."""
    every = schemas.object(Ended, asked=False)["properties"]
    properties = {name: every[name] | members.get(name, {}) for name in every}
    return {"type": "object", "description": words, "properties": properties | own, "required": list(required)}


def _next_step(step: Schema) -> Schema:
    """Return the member `next_step` of problems in calls that start something."""
    words = "in calls that start something: the till's next step. A till treats an unknown word as `ask_person`"
    return {"next_step": step | {"description": words}}


def _unknown_id(schemas: Schemas) -> Schema:
    """Return the members that a problem has if its id is unknown."""
    return {field: schemas.of(kind) for field, kind in UNKNOWN_ID.items()}


def problem_answers(route: Route, examples: "Examples") -> dict[int, Schema]:
    """Return the refusals of a call, by status."""
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(route.problems):
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    return {status: _problem_answer(route, status, here, examples) for status, here in sorted(by_status.items())}


def _problem_answer(route: Route, status: int, codes: list[str], examples: "Examples") -> Schema:
    refs = {code: f"#/components/schemas/{name(code, printing=_tag(route) == PRINTING)}" for code in codes}
    schema = {
        "anyOf": [{"$ref": ref} for ref in (*refs.values(), f"#/components/schemas/{LATER}")],
        "x-posd-open": True,
        "discriminator": {"propertyName": "code", "mapping": refs},
    }
    words = "; ".join(f"`{code}`: {PROBLEMS[code].when}" for code in codes)
    shown = {
        code: {"$ref": f"#/components/examples/{example_name(code, calls)}"}
        for code in codes
        if (calls := examples.calls(route.name, code)) is not None
    }
    headers = {"headers": HEADERS[status]} if status in HEADERS else {}
    return {"description": words, **headers, "content": {MEDIA: {"schema": schema, "examples": shown}}}


def example_name(code: str, calls: str) -> str:
    """Return the name of the example of a code. `calls`: key of the example, as in `Examples.problems`."""
    return name(code) if calls == EVERY_CALL else f"{name(code)}.{calls.split()[0]}"


# The whole description: its introduction, the calls, the schemas, the examples.

WORDS = """\
HTTP/1.1 and JSON over Unix sockets. posd accepts any host name in a request. Amounts are exact decimals: read them as \
decimals, never as binary floats. If you cannot, ask for `amounts=text`, which every call accepts. Times are ISO 8601, \
in UTC. The `detail` of a problem and of an attention is one line of printable characters: show it unchanged. Other \
texts of terminals and tills are unchanged, and can contain line breaks and control characters.

`x-posd-socket` names the socket of a call. `till` is the till's socket (by default `/run/posd/till.sock`). `admin` is \
the socket of operators (`/run/posd/admin.sock`), which serves every call. `feed` is the socket of a relay to head \
office (`/run/posd/feed.sock`), which serves only the calls that name it.

A problem (`application/problem+json`, RFC 9457) has a `code` that never changes its meaning. If the response to a \
`PUT` is a 4xx or 503 with a `code`, this call sent and recorded nothing (after `id_reused` and `pruned`, an earlier \
call used the id). After any other response that is not 2xx, and after a lost connection, repeat the same call with \
the same id. Every call can also be refused as follows: an unknown path by `not_found`, a wrong method by \
`method_not_allowed`, and a request that is not HTTP/1.1 by a status without a body, after which posd closes the \
connection. A path with GET also accepts HEAD.

An enum is closed. Later versions may add words to `x-extensible-enum`, fields to responses, and problem codes: a \
client must accept them. Nothing else changes under `/v1`.\
"""

PRINTING = ("Print jobs", "documents that terminals print")
REPORTS = ("Report", "sums of payments in a period, or in a shift that an operator closed")
TAGS = {
    "transactions": ("Transactions", "payments: start once, wait, read, decide"),
    "print-jobs": PRINTING,
    "terminals": ("Terminals", "the fleet, and announced terminals"),
    "feed": ("Feed", "every recorded change"),
    "report": REPORTS,
    "shifts": REPORTS,
}
SERVICE = ("Service", "posd itself")
OPERATORS = ("Operators", "calls for operators")


#: Members that responses repeat unchanged. In the examples they have spaces, as most tills and terminals write them.
REPEATED = frozenset({"amount", "metadata", "options", "event", "final_event"})


#: Calls that start something.
STARTING = frozenset(route.name for route in routes.ALL if route.method == STARTS)

#: Key of the example of a code that applies to each call without an example of its own.
EVERY_CALL = "*"


class Examples(msgspec.Struct, frozen=True):
    """Content of `examples.json`: bodies by call and name, responses by call and status, problems by code and calls.

    A response, or the `outcome` of a problem, is a full document or the name of one. The calls of a problem are names
    with a blank between them, or `*`. The example of a problem has the detail and the code's own fields, as the daemon
    writes them.
    """

    bodies: dict[str, dict[str, Any]]
    answers: dict[str, dict[str, Any]]
    documents: dict[str, Any]
    problems: dict[str, dict[str, dict[str, Any]]]

    @classmethod
    def read(cls) -> "Examples":
        """Read the file. Its numbers keep their digits."""
        found = decode(resources.files("posd.api").joinpath("examples.json").read_bytes())
        return cls(found.pop("bodies"), **_as_sent(found))

    def answer(self, call: str, status: int) -> Any:
        """Return the example of a response, or None."""
        return self._document(self.answers.get(call, {}).get(str(status)))

    def problem(self, code: str, calls: str) -> Schema:
        """Return the example of a problem code. `calls`: key of the example in `problems`."""
        fields = self.problems[code][calls]
        own = {"outcome": self._document(fields["outcome"])} if "outcome" in fields else {}
        starts = all(call in STARTING for call in calls.split())
        return Problem(code, **fields | own).document(starts=starts)

    def _document(self, found: Any) -> Any:
        return self.documents[found] if isinstance(found, str) else found

    def calls(self, call: str, code: str) -> str | None:
        """Return the key of the example of a code for a call, or None."""
        found = self.problems.get(code, {})
        return next((calls for calls in found if call in calls.split()), EVERY_CALL if EVERY_CALL in found else None)


def _as_sent(value: Any) -> Any:
    """Return examples of responses. The members in `REPEATED` are encoded as posd sends them."""
    if isinstance(value, list):
        return [_as_sent(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: msgspec.Raw(msgspec.json.format(encode(item), indent=0)) if name in REPEATED else _as_sent(item)
        for name, item in value.items()
    }


def describe() -> Schema:
    """Return the description of the API."""
    schemas, examples = Schemas(), Examples.read()
    paths = {
        path: {route.method.lower(): _operation(schemas, examples, route) for route in rows}
        for path, rows in routes.by_path(routes.ALL).items()
    }
    for code in PROBLEMS:
        schemas.components[name(code)] = schema(schemas, code)
        if PROBLEMS[code].print_extra:
            schemas.components[name(code, printing=True)] = schema(schemas, code, printing=True)
    schemas.components[LATER] = later_schema(schemas)
    samples = {
        example_name(code, calls): {"value": examples.problem(code, calls)}
        for code, found in examples.problems.items()
        for calls in found
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "posd",
            "summary": "Card payments on the terminals of a shop, for the till beside them.",
            "description": WORDS,
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://posd", "description": "over the Unix socket"}],
        "tags": [
            {"name": tag, "description": words} for tag, words in dict.fromkeys((*TAGS.values(), SERVICE, OPERATORS))
        ],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.components.items())), "examples": samples},
    }


def _operation(schemas: Schemas, examples: Examples, route: Route) -> Schema:
    sockets = ["admin"] if route.admin else ["till", "admin", *(["feed"] if route.feed else [])]
    operation: Schema = {
        "operationId": route.name,
        "summary": route.summary.partition(". ")[0].rstrip("."),
        "description": route.summary + (" Served on the admin socket only." if route.admin else ""),
        "tags": [_tag(route)[0]],
        "x-posd-socket": sockets,
    }
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    rows = [_parameter("path", parameters.PATH[name]) for name in names]
    rows += [_metadata(row) if row.name == METADATA else _parameter("query", row) for row in route.parameters]
    rows += [_parameter("header", row) for row in route.headers]
    operation |= {"parameters": rows} if rows else {}
    if route.body is not None:
        asked = {name: {"value": value} for name, value in examples.bodies[route.name].items()}
        content = {"schema": schemas.of(route.body, asked=True), "examples": asked}
        operation["requestBody"] = {"required": route.body_required, "content": {"application/json": content}}
    answers = {
        status: _answer(schemas, answer, examples.answer(route.name, status))
        for status, answer in route.answers.items()
    }
    refused = problem_answers(route, examples)
    operation["responses"] = {str(status): row for status, row in sorted((refused | answers).items())}
    return operation


def _tag(route: Route) -> tuple[str, str]:
    return TAGS.get(route.path.split("/")[2] if route.path.startswith("/v1/") else "") or (
        OPERATORS if route.admin else SERVICE
    )


def _answer(schemas: Schemas, answer: AnswerSpec, example: Any) -> Schema:
    content: Schema = {answer.media: {"schema": schemas.of(answer.type)}}
    if example is not None:
        content[answer.media]["example"] = example
    if answer.also is not None:
        content[answer.also] = {"schema": {"type": "string", "contentMediaType": answer.also}}
    if answer.stream:
        messages = [
            {"event": item.event, "description": item.words, "data": schemas.of(item.data)} for item in answer.stream
        ]
        content[STREAM] = {"schema": {"type": "string", "contentMediaType": STREAM}, "x-posd-messages": messages}
    return {"description": answer.words, "content": content}


def _parameter(place: str, row: Parameter) -> Schema:
    schema = dict(row.kind.schema)
    if row.default is not None:
        schema["default"] = str(row.default) if row.kind is PLACE else row.default
    found: Schema = {"name": row.name, "in": place, "description": row.words, "schema": schema}
    if place == "path":
        found["required"] = True
    return found | ({"example": row.example} if row.example is not None else {})


def _metadata(row: Parameter) -> Schema:
    """Return one parameter for all query parameters with a prefix: an object with one member for each."""
    schema = {
        "type": "object",
        "propertyNames": {"pattern": "^metadata\\."},
        "additionalProperties": row.kind.schema,
        "maxProperties": parameters.MAX_METADATA,
    }
    return {
        "name": "metadata",
        "in": "query",
        "description": row.words,
        "style": "form",
        "explode": True,
        "schema": schema,
        "example": row.example,
    }


@cache
def document() -> bytes:
    """Return the description as JSON."""
    return encode(describe())
