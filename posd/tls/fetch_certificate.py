"""What certificate somebody shows who listens: one handshake, in which nothing is believed and nothing is sent."""

import socket
import ssl
from contextlib import closing


class NotShown(Exception):
    """No certificate came; the message says why, in words that follow on an address."""


def shown(host: str, port: int, *, seconds: float, server_name: str = "") -> bytes:
    """Return the certificate (DER) that a listener shows to who asks for `server_name` (default: the host).

    Blocking, `seconds` at most for the connection and for each step of the handshake. Raises NotShown.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is read here, not trusted; no request follows
    try:
        with (
            closing(socket.create_connection((host, port), seconds)) as raw,
            context.wrap_socket(raw, server_hostname=server_name or host) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise NotShown(f"does not speak TLS 1.2 or newer there ({error.reason or error})") from error
    except TimeoutError as error:
        raise NotShown(f"does not answer within {seconds:g} s") from error
    except (OSError, ValueError) as error:  # ValueError: a host that cannot be a name (UnicodeError too)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise NotShown(f"cannot be reached ({reason})") from error
    if not certificate:
        raise NotShown("shows no certificate")
    return certificate
