"""One HTTP request to a terminal, and what an authentication makes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from posd.config.values import sendable


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. Only its method shows in repr: the rest can hold secrets, a signed URL too.

    `opened` makes of the body of the reply what the terminal says in it. Raise Unreadable where it cannot.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False, default=None)
    opened: Callable[[bytes], bytes] = field(repr=False, default=bytes)

    def with_headers(self, values: Mapping[str, str]) -> "Request":
        """Return it with these headers; they replace those of the same name, in any case (RFC 9110, 5.1)."""
        replaced = {name.lower() for name in values}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in replaced}
        return replace(self, headers={**kept, **values})


#: Called for each request just before it is sent, in the event loop: it must not block.
Authentication = Callable[[Request], Request]


class NotAuthenticated(Exception):
    """No request came out that can be sent. The message says of what kind the failure is, and quotes nothing."""


class Unreadable(ValueError):
    """A reply is encrypted, and not in the way of the request; the message says so."""


def authenticate(request: Request, authentication: Authentication) -> Request:
    """Return the request to send. Raise NotAuthenticated for every failure.

    Headers are looked at here, so that the failure is told as one of the authentication; nothing is connected yet.
    """
    try:
        authenticated = authentication(request)
    except Exception as error:  # noqa: BLE001 - of a scheme's own; its text may quote a key
        raise NotAuthenticated(f"the request could not be authenticated ({type(error).__name__})") from None
    if not sendable(authenticated.headers):
        raise NotAuthenticated("the request could not be authenticated (a header that cannot be sent)")
    return authenticated
