"""The whole description: what it is about, the calls, the schemas, the examples."""

from typing import Any

from posd import __version__
from posd.api import routes
from posd.api.openapi import examples, problems
from posd.api.openapi.schemas import Schema, Schemas
from posd.base.problems import PROBLEMS
from posd.calls import parameters
from posd.calls.parameters import METADATA, PLACE, UNSEARCHABLE, Parameter
from posd.calls.route import Answer, Route
from posd.httpd.accept import STREAM
from posd.payments.documents import Outcome
from posd.printing.documents import PrintJob

WORDS = """\
HTTP/1.1 and JSON over Unix sockets: whatever host a request names is right. Amounts are exact decimals: read them as \
such, never as binary floats. Moments are ISO 8601, UTC.

`x-posd-socket` says where a call is served: `till` is the till's socket (by default `/run/posd/till.sock`), `admin` \
that of operators (`/run/posd/admin.sock`), which serves everything.

A problem (`application/problem+json`, RFC 9457) has a `code` that never changes its meaning. As the answer to a `PUT` \
a 4xx or 503 says that this call sent nothing and nothing of it is recorded (after `id_reused` and `pruned` the id has \
a past of its own). Anything else that is no 2xx, a lost connection too: repeat the same call with the same id. Beside \
what stands at each call: a path that is not here is answered by `not_found`, a method that a path does not have by \
`method_not_allowed`, and what is no HTTP/1.1 by a bare status and the end of the connection. HEAD is answered \
where GET is.

An enum is closed. Words of `x-extensible-enum` may become more, and so may fields in answers and problem codes: \
whoever reads them has to bear it. Nothing else changes under `/v1`.\
"""

TAGS = {
    "transactions": ("Transactions", "payments: start once, wait, look, decide"),
    "print-jobs": ("Print jobs", "documents for the printers of the terminals"),
    "terminals": ("Terminals", "the fleet, and what is announced"),
    "feed": ("Feed", "every recorded change"),
}
SERVICE = ("Service", "posd itself")
OPERATORS = ("Operators", "what a person does to the records as a whole")


def describe() -> Schema:
    """Return the description."""
    schemas = Schemas({"Outcome": Outcome, "PrintJob": PrintJob})
    paths = {
        path: {route.method.lower(): _operation(schemas, route) for route in rows}
        for path, rows in routes.by_path(routes.ALL).items()
    }
    samples = {}
    for code in PROBLEMS:
        schemas.components[problems.name(code)] = problems.schema(schemas, code)
        samples[problems.name(code)] = {"value": problems.example(code, **examples.EXTRA.get(code, {}))}
    samples = {
        problems.name(code): {"value": problems.example(code, **examples.EXTRA.get(code, {}))} for code in PROBLEMS
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
        "tags": [{"name": tag, "description": words} for tag, words in (*TAGS.values(), SERVICE, OPERATORS)],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.components.items())), "examples": samples},
    }


def _operation(schemas: Schemas, route: Route) -> Schema:
    sockets = ["admin"] if route.admin else ["till", "admin"]
    operation: Schema = {
        "operationId": route.name,
        "summary": route.summary.partition(". ")[0].rstrip("."),
        "description": route.summary + (" Served on the admin socket alone." if route.admin else ""),
        "tags": [_tag(route)[0]],
        "x-posd-socket": sockets,
    }
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    rows = [_parameter("path", parameters.PATH[name]) for name in names]
    rows += [_metadata(row) if row.name == METADATA else _parameter("query", row) for row in route.query]
    rows += [_parameter("header", row) for row in route.headers]
    operation |= {"parameters": rows} if rows else {}
    if route.body is not None:
        asked = {name: {"value": value} for name, value in examples.ASKED[route.name].items()}
        content = {"schema": schemas.of(route.body, asked=True), "examples": asked}
        operation["requestBody"] = {"required": route.body_required, "content": {"application/json": content}}
    answers = {
        status: _answer(schemas, answer, examples.ANSWERED.get((route.name, status)))
        for status, answer in route.answers.items()
    }
    refused = problems.answers(route.problems)
    operation["responses"] = {str(status): row for status, row in sorted((refused | answers).items())}
    return operation


def _tag(route: Route) -> tuple[str, str]:
    return TAGS.get(route.path.split("/")[2] if route.path.startswith("/v1/") else "") or (
        OPERATORS if route.admin else SERVICE
    )


def _answer(schemas: Schemas, answer: Answer, example: Any) -> Schema:
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
    """Return what stands for all parameters of that prefix: an object each of whose members is one."""
    barred = "".join(f"\\u{ord(character):04x}" for character in sorted(UNSEARCHABLE))
    schema = {
        "type": "object",
        "propertyNames": {"pattern": f"^metadata\\.[^{barred}]+$"},
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
