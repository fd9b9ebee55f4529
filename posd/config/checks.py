"""What can be wrong between values that are each right by themselves."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from posd.config.profile import ACCESS_MODES, CLIENT_TRANSACTION_ID
from posd.config.schema import PROFILE_SECTIONS, Config, TerminalConfig

#: A Unix socket's path has to fit into sockaddr_un with its closing zero byte (unix(7)).
MAX_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem between the values of `keys`; it is reported at the first of them."""

    keys: tuple[str, ...]
    reason: str
    cure: str


def findings(config: Config) -> Iterator[Finding]:
    """Find everything that is wrong between values."""
    for check in CHECKS:
        yield from check(config)


def _socket_paths(config: Config) -> Iterator[Finding]:
    size = len(str(config.local_api.admin_socket).encode())
    if size > MAX_SOCKET_PATH_BYTES:
        yield Finding(
            ("local_api.directory",),
            f"makes a socket path of {size} bytes; the system allows {MAX_SOCKET_PATH_BYTES}",
            "choose a shorter directory",
        )


def _print_poll(config: Config) -> Iterator[Finding]:
    if config.print_.poll_first_seconds > config.print_.poll_max_seconds:
        yield Finding(
            ("print.poll_first_seconds", "print.poll_max_seconds"),
            "is longer than poll_max_seconds",
            "make it the shorter of the two",
        )


def _cloud_address(config: Config) -> Iterator[Finding]:
    for at, terminal in _terminals(config):
        if terminal.access_mode == "cloud" and not terminal.base_url:
            yield Finding(
                (f"{at}.base_url", at),
                "is missing: this terminal is called through the cloud, and only terminals on this network are found "
                "by discovery",
                'write the address of the service, as in base_url = "https://HOST"',
            )


def _cloud_callback(config: Config) -> Iterator[Finding]:
    cloud = next((at for at, terminal in _terminals(config) if terminal.access_mode == "cloud"), None)
    if cloud is not None and not config.webhooks.public_url:
        yield Finding(
            ("webhooks.public_url", "webhooks"),
            f"is missing: {cloud} is called through the cloud, and the service calls back from outside this network",
            'write where it reaches this listener, as in public_url = "https://HOST", or access_mode = "local"',
        )


def _unique_serials(config: Config) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for at, terminal in _terminals(config):
        key = f"{at}.serial"
        if not terminal.serial:
            continue  # it could not be read, which is a problem of its own
        if terminal.serial in first:
            yield Finding(
                (key, first[terminal.serial]),
                f"{terminal.serial!r} is the serial of {first[terminal.serial].removesuffix('.serial')} too",
                "give each terminal once, with its own serial",
            )
        else:
            first[terminal.serial] = key


def _pin_without_tls(config: Config) -> Iterator[Finding]:
    for at, terminal in _terminals(config):
        if terminal.fingerprint_sha256 and _scheme(terminal) == "http":
            yield Finding(
                (f"{at}.fingerprint_sha256", f"{at}.base_url", f"{at}.scheme", "terminal_defaults.scheme"),
                "cannot be checked: this terminal is called without TLS",
                "call it over https, or remove the fingerprint",
            )


def _name_that_is_not_looked_at(config: Config) -> Iterator[Finding]:
    """A server_name that a terminal has of its own, or that the defaults have and no terminal uses."""
    for at, terminal in _terminals(config):
        key = f"{at}.server_name"
        if not terminal.server_name or config.sources.get(key) != "file":
            continue
        if _scheme(terminal) == "http":
            yield Finding(
                (key, f"{at}.base_url", f"{at}.scheme", "terminal_defaults.scheme"),
                "cannot be checked: this terminal is called without TLS",
                "call it over https, or remove server_name",
            )
        elif terminal.fingerprint_sha256:
            yield Finding(
                (key, f"{at}.fingerprint_sha256"),
                "is not looked at: fingerprint_sha256 trusts one certificate, whatever its name",
                "remove one of the two",
            )
    unused = [item for item in config.terminals if _scheme(item) == "http" or item.fingerprint_sha256]
    if config.terminal_defaults.server_name and config.terminals and len(unused) == len(config.terminals):
        yield Finding(
            ("terminal_defaults.server_name", "terminals"),
            "is not looked at: every terminal is called without TLS or has a fingerprint_sha256",
            "remove it",
        )


def _search_by_get(config: Config) -> Iterator[Finding]:
    for access_mode in ACCESS_MODES:
        at, row = PROFILE_SECTIONS[access_mode], config.profile.table(access_mode)["search"]
        if row.method == "GET" and f"{{{CLIENT_TRANSACTION_ID}}}" not in row.path:
            yield Finding(
                (f"{at}.search.path", f"{at}.search.method"),
                "does not say which transaction is asked for: a GET has no body",
                f"put {{{CLIENT_TRANSACTION_ID}}} into the path",
            )


CHECKS: tuple[Callable[[Config], Iterator[Finding]], ...] = (
    _socket_paths,
    _print_poll,
    _cloud_address,
    _cloud_callback,
    _unique_serials,
    _pin_without_tls,
    _name_that_is_not_looked_at,
    _search_by_get,
)


def _terminals(config: Config) -> Iterator[tuple[str, TerminalConfig]]:
    for index, terminal in enumerate(config.terminals):
        yield f"terminals[{index}]", terminal


def _scheme(terminal: TerminalConfig) -> str:
    return urlsplit(terminal.base_url).scheme if terminal.base_url else terminal.scheme
