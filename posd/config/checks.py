"""What can be wrong between values that are each right by themselves."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from posd.config.schema import Config, TerminalConfig
from posd.core.profile import CLIENT_TRANSACTION_ID

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


def _access_mode(config: Config) -> Iterator[Finding]:
    for key in _written(config, "access_mode"):
        value = config.terminal_defaults if key.startswith("terminal_defaults") else _terminal(config, key)
        if value.access_mode == "cloud":
            yield Finding((key,), "is cloud, which this version of posd does not support", 'write "local"')


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


def _search_by_get(config: Config) -> Iterator[Finding]:
    for at, table in (("profile", config.profile.local), ("profile.cloud", config.profile.cloud)):
        row = table["search"]
        if row.method == "GET" and f"{{{CLIENT_TRANSACTION_ID}}}" not in row.path:
            yield Finding(
                (f"{at}.search.path", f"{at}.search.method"),
                "does not say which transaction is asked for: a GET has no body",
                f"put {{{CLIENT_TRANSACTION_ID}}} into the path",
            )


CHECKS: tuple[Callable[[Config], Iterator[Finding]], ...] = (
    _socket_paths,
    _print_poll,
    _access_mode,
    _unique_serials,
    _pin_without_tls,
    _search_by_get,
)


def _terminals(config: Config) -> Iterator[tuple[str, TerminalConfig]]:
    for index, terminal in enumerate(config.terminals):
        yield f"terminals[{index}]", terminal


def _written(config: Config, name: str) -> list[str]:
    """The keys of this name that stand in the file, not those that only inherit."""
    return [key for key, source in config.sources.items() if source == "file" and key.endswith(f".{name}")]


def _terminal(config: Config, key: str) -> TerminalConfig:
    return config.terminals[int(key.removeprefix("terminals[").partition("]")[0])]


def _scheme(terminal: TerminalConfig) -> str:
    return urlsplit(terminal.base_url).scheme if terminal.base_url else terminal.scheme
