"""Which form of an answer a client prefers (RFC 9110, 12.5.1): the document, or an event stream."""

from starlette.requests import Request

STREAM = "text/event-stream"
DOCUMENT = "application/json"


def wants_stream(request: Request) -> bool:
    """Whether a client asks for a stream: it names it, and prefers no document to it. Where it likes both, it gets it.

    A wildcard asks for nothing in particular, and gets the document.
    """
    weights: dict[str, float] = {}
    for part in ",".join(request.headers.getlist("accept")).split(","):
        media_type, *parameters = (item.strip().lower() for item in part.split(";"))
        weights[media_type] = max(_weight(parameters), weights.get(media_type, 0.0))
    return weights.get(STREAM, 0.0) > 0 and weights[STREAM] >= weights.get(DOCUMENT, 0.0)


def _weight(parameters: list[str]) -> float:
    """Return the weight (`q`), 1 where none is given or it is none."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 1.0
    return 1.0
