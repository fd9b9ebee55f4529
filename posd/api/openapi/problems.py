"""Problems in the description: one schema a code, and the answers of a call by status."""

from collections.abc import Iterable
from typing import Any

from posd.api.openapi.schemas import Schema, Schemas
from posd.base.problems import PROBLEMS, Problem

MEDIA = "application/problem+json"

#: Headers of the answers with that status.
HEADERS: dict[int, Schema] = {
    405: {"Allow": {"description": "the methods that the path has", "schema": {"type": "string"}}},
    503: {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}},
}


def name(code: str) -> str:
    """Return the name of the schema of a code."""
    return "Problem" + "".join(word.capitalize() for word in code.split("_"))


def schema(schemas: Schemas, code: str) -> Schema:
    """Return the schema of the problems of a code."""
    row = PROBLEMS[code]
    own = {field: schemas.of(kind) for field, kind in row.extra.items()}
    properties = {
        "type": {"const": f"urn:posd:problem:{code}"},
        "title": {"type": "string", "description": "the same for every problem of the code"},
        "status": {"const": row.status, "description": "the HTTP status"},
        "detail": {"type": "string", "description": "what cannot be done, why, and what to do; for people"},
        "code": {"const": code, "description": "what a program looks at"},
    }
    return {
        "type": "object",
        "title": row.title,
        "description": row.when,
        "properties": properties | own,
        "required": [*properties, *(() if row.optional else own)],
    }


def answers(codes: Iterable[str]) -> dict[int, Schema]:
    """Return the answers of a call that can have these codes, by status."""
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    return {status: _answer(status, here) for status, here in sorted(by_status.items())}


def _answer(status: int, codes: list[str]) -> Schema:
    refs = {code: f"#/components/schemas/{name(code)}" for code in codes}
    schema = {
        "anyOf": [{"$ref": ref} for ref in refs.values()],
        "x-posd-open": True,
        "discriminator": {"propertyName": "code", "mapping": refs},
    }
    words = "; ".join(f"`{code}`: {PROBLEMS[code].when}" for code in codes)
    examples = {code: {"$ref": f"#/components/examples/{name(code)}"} for code in codes}
    headers = {"headers": HEADERS[status]} if status in HEADERS else {}
    return {"description": words, **headers, "content": {MEDIA: {"schema": schema, "examples": examples}}}


def example(code: str, **extra: Any) -> dict[str, Any]:
    """Return an example of a code's problem."""
    return Problem(code, f"{PROBLEMS[code].when}: here it says what to do", **extra).document()
