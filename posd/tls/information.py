"""What a certificate says about itself."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """Times in UTC, the fingerprint in lower hex without colons; subject and issuer as in RFC 4514 (`CN=…`)."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint_sha256: str

    def days_left(self, now: datetime) -> int:
        """Return the whole days until it ends; negative once it has."""
        return (self.not_after - now).days
