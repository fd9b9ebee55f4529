"""Cases for strict clients: certificates of posd, and wrong certificates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.asymmetric import ec

from posd.tls import issue
from posd.tls.certificate import Subjects
from posd.tls.files import files_in
from tests.rig.certificates import LONG_AGO, YESTERDAY, Leaf, PrivateCa, issued, self_signed

#: Host name by which a client calls the server on 127.0.0.1.
NAME = "pos.shop.example"
ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class Case:
    """The certificate chain of a server, and the CA that the client trusts."""

    leaf: Leaf
    ca: Path


def _init(directory: Path) -> Case:
    made = issue.init(directory / "tls", names=[NAME], addresses=[ADDRESS, "::1"])
    return Case(Leaf(made.certificate, made.private_key), made.ca_certificate)


def _renewed(directory: Path) -> Case:
    case = _init(directory)
    issue.renew(directory / "tls")
    return case


def _overlap(directory: Path, trusted: str) -> Case:
    """Yield cases of a prepared new CA. Terminals have the old CA, or only the new CA."""
    case = _init(directory)
    (directory / "old.crt").write_bytes(case.ca.read_bytes())
    made = issue.renew(directory / "tls", new_ca=True)
    return Case(case.leaf, {"old": directory / "old.crt", "new": made.next_ca_certificate}[trusted])


def _followed(directory: Path, trusted: str) -> Case:
    case = _overlap(directory, "old")
    made = issue.renew(directory / "tls", end_old_ca=True)
    return Case(case.leaf, {"old": case.ca, "new": made.ca_certificate}[trusted])


def _of_before(directory: Path, trusted: str) -> Case:
    """Return the case of a CA of an earlier version. The CA has no name constraints and allows no CA below it."""
    made = files_in(directory / "tls")
    ca, leaf = PrivateCa(path_length=0).write(directory / "tls", NAME, ADDRESS)
    for old, new in ((ca, made.ca_certificate), (leaf.certificate, made.certificate)):
        old.rename(new)
    leaf.private_key.rename(made.private_key)
    issue.renew(directory / "tls", new_ca=trusted != "alone")
    return Case(
        Leaf(made.certificate, made.private_key), made.next_ca_certificate if trusted == "new" else made.ca_certificate
    )


def _stolen(directory: Path, *names: str) -> Case:
    """Yield cases of a stolen CA key. The thief makes a certificate for a name that the CA may not sign."""
    ca_of, key = issue.make_ca(Subjects(("till.shop.lan",))), ec.generate_private_key(ec.SECP256R1())
    leaf, ca = Leaf(directory / "leaf.crt", directory / "leaf.key"), directory / "ca.crt"
    numbers = tuple(text for text in names if text[0].isdigit())
    subjects = Subjects(tuple(text for text in names if text not in numbers), numbers)
    made = issue.make_server(ca_of.issuer, key, subjects)
    leaf.certificate.write_bytes(issue.pem(made) + issue.pem(ca_of.issuer[0]))
    leaf.private_key.write_bytes(issue.key_pem(key))
    ca.write_bytes(issue.pem(ca_of.root))
    return Case(leaf, ca)


def _by_ca(make: Callable[[Path, trustme.CA], Leaf]) -> Callable[[Path], Case]:
    def made(directory: Path) -> Case:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(directory / "ca.pem"))
        return Case(make(directory, authority), directory / "ca.pem")

    return made


def _another_ca(directory: Path) -> Case:
    """Yield cases of a server that sends a chain with another CA. A client must not trust this CA."""
    case = _init(directory)
    other = issue.init(directory / "other", names=[NAME], addresses=[ADDRESS])
    return Case(case.leaf, other.ca_certificate)


ACCEPTED: Mapping[str, Callable[[Path], Case]] = {
    "init": _init,
    "renewed": _renewed,
    "overlap, the old CA": partial(_overlap, trusted="old"),
    "overlap, the new CA": partial(_overlap, trusted="new"),
    "successor, the new CA": partial(_followed, trusted="new"),
    "a CA of an earlier version": partial(_of_before, trusted="alone"),
    "a CA of an earlier version, overlap, the old CA": partial(_of_before, trusted="old"),
    "a CA of an earlier version, overlap, the new CA": partial(_of_before, trusted="new"),
}
REFUSED: Mapping[str, Callable[[Path], Case]] = {
    "wrong CA": _another_ca,
    "wrong name": _by_ca(lambda home, ca: issued(home, ca, "other.example", "127.0.0.2")),
    "expired": _by_ca(lambda home, ca: issued(home, ca, NAME, ADDRESS, not_before=LONG_AGO, not_after=YESTERDAY)),
    "successor, the old CA": partial(_followed, trusted="old"),
    "stolen key, a public name": lambda home: _stolen(home, NAME, ADDRESS),
    "stolen key, a public address": lambda home: _stolen(home, "till.shop.lan", ADDRESS, "8.8.8.8"),
    "self-signed": _by_ca(lambda home, _: self_signed(home, NAME, ADDRESS)),
}
