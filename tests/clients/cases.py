"""What strict clients have to judge: certificates that posd makes, and wrong ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import trustme

from posd import tls
from tests.support.certificates import LONG_AGO, YESTERDAY, Leaf, issued, self_signed

#: What a client calls the server, which is on 127.0.0.1.
NAME = "pos.shop.example"
ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class Case:
    """What a server shows, and the CA that the client trusts."""

    leaf: Leaf
    ca: Path


def _init(directory: Path) -> Case:
    made = tls.init(directory / "tls", names=[NAME], addresses=[ADDRESS, "::1"])
    return Case(Leaf(made.certificate, made.private_key), made.ca_certificate)


def _renewed(directory: Path) -> Case:
    case = _init(directory)
    tls.renew(directory / "tls")
    return case


def _by_ca(make: Callable[[Path, trustme.CA], Leaf]) -> Callable[[Path], Case]:
    def made(directory: Path) -> Case:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(directory / "ca.pem"))
        return Case(make(directory, authority), directory / "ca.pem")

    return made


def _another_ca(directory: Path) -> Case:
    """The server's own CA is in the chain that it shows: a client must not take it from there."""
    case = _init(directory)
    other = tls.init(directory / "other", names=[NAME], addresses=[ADDRESS])
    return Case(case.leaf, other.ca_certificate)


ACCEPTED: Mapping[str, Callable[[Path], Case]] = {"init": _init, "renewed": _renewed}
REFUSED: Mapping[str, Callable[[Path], Case]] = {
    "wrong CA": _another_ca,
    "wrong name": _by_ca(lambda home, ca: issued(home, ca, "other.example", "127.0.0.2")),
    "expired": _by_ca(lambda home, ca: issued(home, ca, NAME, ADDRESS, not_before=LONG_AGO, not_after=YESTERDAY)),
    "self-signed": _by_ca(lambda home, _: self_signed(home, NAME, ADDRESS)),
}
