"""TLS towards terminals: a CA, or a pinned fingerprint; verification is never off (design 8)."""

import hashlib
import hmac
import ssl
from pathlib import Path


def context(ca_file: Path | None, fingerprint_sha256: str) -> ssl.SSLContext:
    """Return the context for connections to one terminal.

    With a fingerprint (64 hex digits, lower case) exactly that certificate is accepted, whatever its name and issuer.
    Otherwise the chain and the name are verified against `ca_file`, or the system's CAs where there is none.
    Raise OSError, which names the file, where the CA file cannot be used.
    """
    if not fingerprint_sha256:
        try:
            verified = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        except OSError as error:  # ssl.SSLError is one; neither names the file
            raise OSError(
                f"the CA file {ca_file} holds no certificate that can be read ({error}); it must be the CA of the "
                "terminal, in PEM form"
            ) from error
        verified.minimum_version = ssl.TLSVersion.TLSv1_2
        return verified
    pinned = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    pinned.minimum_version = ssl.TLSVersion.TLSv1_2
    pinned.check_hostname = False
    pinned.verify_mode = ssl.CERT_NONE  # the object below accepts one certificate and no other
    pinned.sslobject_class = _pinned_object(fingerprint_sha256)
    return pinned


def _pinned_object(expected: str) -> type[ssl.SSLObject]:
    class PinnedObject(ssl.SSLObject):
        """Ends the handshake, before anything is sent, where the peer's certificate is another one."""

        def do_handshake(self) -> None:
            super().do_handshake()
            certificate = self.getpeercert(binary_form=True)
            found = hashlib.sha256(certificate or b"").hexdigest()
            if not hmac.compare_digest(found, expected):
                raise ssl.SSLCertVerificationError(
                    1, f"the terminal's certificate has fingerprint {found}, the configuration expects {expected}"
                )

    return PinnedObject
