"""Conversion of the configuration files to `Config`, with all problems collected."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from posd.base.redaction import REDACTED
from posd.base.text import nearest
from posd.config.layers import TERMINALS, Layers, read_all
from posd.config.profile import (
    ACCESS_MODES,
    CLIENT_TRANSACTION_ID,
    EDITIONS,
    AccessMode,
    Edition,
    Profiles,
    Table,
    path_fault,
    pointer_fault,
    replace_row,
)
from posd.config.schema import (
    PROFILE_KEYS,
    PROFILE_SECTIONS,
    SECTIONS,
    Config,
    Key,
    NatsConfig,
    Source,
    TerminalConfig,
    TerminalDefaults,
    keys,
    row_keys,
)
from posd.config.values import (
    ConfigError,
    ConfigProblem,
    HeaderValue,
    ReaderContext,
    UnusableValueError,
    ValueFault,
    type_name,
    written_key,
)

Headers = Mapping[str, HeaderValue]

#: Head of a section in the file -> keys of the section. The rows of the profile are omitted.
HOMES: Mapping[str, Iterable[str]] = {
    **{f"[{section}]": keys(kind) for section, kind in SECTIONS.items()},
    f"[[{TERMINALS}]]": keys(TerminalConfig),
    **{f"[{section}]": PROFILE_KEYS for section in PROFILE_SECTIONS.values()},
}

#: Operations of a profile, which are the same in every edition.
OPERATIONS = tuple(EDITIONS["classic"]["local"])


def load(path: Path, *, check_files: bool = True) -> Config:
    """Read and check the configuration file and the files in `config.d` beside it (`config.layers`).

    Relative paths in all files are relative to the directory of the configuration file.

    Raise ConfigError with every problem. The call blocks, and also opens the files that the configuration names, to
    check that they are readable. `check_files=False` omits this check, for users without access to the daemon's
    secrets.
    """
    return whole(read_all(path), check_files=check_files)


def examine(path: Path, *, check_files: bool = True) -> tuple[Config | None, tuple[ConfigProblem, ...]]:
    """Read the files as `load` does. Return the usable part and every problem.

    The default replaces an unusable value. The configuration is None if no file can be read. The call blocks.
    """
    try:
        reading, config = _read(read_all(path), check_files)
    except ConfigError as error:
        return None, error.problems
    return config, tuple(reading.problems)


def parse(text: str, *, file: Path, check_files: bool = True) -> Config:
    """Read a configuration from text as if it were the content of `file`. Raise ConfigError."""
    layers = Layers(file.absolute())
    layers.add(layers.first, text)
    return whole(layers, check_files=check_files)


def whole(layers: Layers, *, check_files: bool = True) -> Config:
    """Read the layers as one configuration. Raise ConfigError."""
    reading, config = _read(layers, check_files)
    if reading.problems:
        raise ConfigError(tuple(reading.problems))
    return config


def _read(layers: Layers, check_files: bool) -> "tuple[ConfigReader, Config]":
    """Read as much as possible. Return the reader, which has the problems, and the configuration."""
    reading = ConfigReader(layers, ReaderContext(layers.first.parent, check_files))
    config = reading.config(layers.document)
    reading.cross_check(config)
    return reading, config


class ConfigReader:
    """Reader of one document. For an unusable value, it records a problem and uses the default."""

    def __init__(self, layers: Layers, base: ReaderContext) -> None:
        self._layers = layers
        self._base = base
        self._sources: dict[str, Source] = {}
        self._with_fault: set[str] = set()
        self.problems: list[ConfigProblem] = []

    def config(self, document: dict[str, Any]) -> Config:
        """Return the configuration from the merged files."""
        self._unknown("", document, (*SECTIONS, "terminals", "profile"))
        sections = {name: self._section(name, section, document.get(name, {})) for name, section in SECTIONS.items()}
        sections["print_"] = sections.pop("print")
        given = self._sources["print.document_member"] == "file"
        member = sections["print_"].document_member if given else None
        profiles, headers = self._profiles(document.get("profile", {}), member)
        terminals = self._terminals(document.get("terminals", []), sections, headers)
        self._certificate_pair(document.get("webhooks"))
        sources = MappingProxyType(self._sources)
        return Config(
            file=self._layers.first,
            terminals=terminals,
            profiles=profiles,
            profile_headers=headers,
            sources=sources,
            layers=self._layers,
            **sections,
        )

    def cross_check(self, config: Config) -> None:
        """Add the conflicts between values, unless one of these values has a problem itself."""
        for conflicts in CHECKS:
            for names, reason, cure in conflicts(config):
                if self._with_fault.isdisjoint(names):
                    self._add(names[0], ValueFault(reason, cure))

    def _certificate_pair(self, raw: object) -> None:
        """Add a problem if only one of the two files is configured, whether it is readable or not."""
        table = raw if isinstance(raw, dict) else {}
        given = [name for name in ("certificate", "private_key") if table.get(name)]
        if len(given) == 1:
            missing = "private_key" if given == ["certificate"] else "certificate"
            cure = f"add {missing} = …; or remove both, to use the files of posd tls init"
            self._add(f"webhooks.{given[0]}", ValueFault(f"is given without {missing}", cure))

    def _section(self, at: str, section: type[Any], raw: object) -> Any:
        table = self._table(at, raw, f"write a section [{at}]")
        return section(**self._values(at, keys(section), table))

    def _terminals(
        self, raw: object, sections: Mapping[str, Any], profile_headers: Mapping[AccessMode, Headers]
    ) -> tuple[TerminalConfig, ...]:
        if not isinstance(raw, list):
            self._add("terminals", ValueFault(f"must be a list of tables, is {type_name(raw)}", "write [[terminals]]"))
            return ()
        defaults: TerminalDefaults = sections["terminal_defaults"]
        found = []
        for index, entry in enumerate(raw):
            at = f"terminals[{index}]"
            table = self._table(at, entry, "write each terminal as a section [[terminals]]")
            values = self._values(at, keys(TerminalConfig), table, inherit=defaults)
            of_mode, own = profile_headers[values["access_mode"]], values["headers"] if "headers" in table else {}
            if of_mode and not own:
                self._sources[f"{at}.headers"] = PROFILE_SECTIONS[values["access_mode"]]
            values["headers"] = _merge(defaults.headers, of_mode, own)
            found.append(TerminalConfig(**values, hash_encrypt=sections["hash_encrypt"]))
        return tuple(found)

    def _profiles(self, raw: object, document_member: str | None) -> tuple[Profiles, Mapping[AccessMode, Headers]]:
        table = self._table("profile", raw, "write sections like [profile.charge]")
        self._unknown("profile", table, (*PROFILE_KEYS, *OPERATIONS, "cloud"))
        cloud = self._table("profile.cloud", table.get("cloud", {}), "write sections like [profile.cloud.charge]")
        self._unknown("profile.cloud", cloud, (*PROFILE_KEYS, *OPERATIONS))
        headers: dict[AccessMode, Headers] = {}
        given: dict[AccessMode, dict[str, dict[str, Any]]] = {}
        for mode, at in PROFILE_SECTIONS.items():
            own = table if mode == "local" else cloud
            keys_of_mode = {name: value for name, value in own.items() if name in PROFILE_KEYS}
            headers[mode] = self._values(at, PROFILE_KEYS, keys_of_mode)["headers"]
            given[mode] = {name: self._row(f"{at}.{name}", name, mode, own.get(name, {})) for name in OPERATIONS}
            given[mode]["print"]["document_member"] = document_member
        profiles: dict[Edition, Mapping[AccessMode, Table]] = {
            name: {mode: _laid_over(rows, given[mode]) for mode, rows in edition.items()}
            for name, edition in EDITIONS.items()
        }
        return MappingProxyType(profiles), MappingProxyType(headers)

    def _row(self, at: str, operation: str, access_mode: AccessMode, raw: object) -> dict[str, Any]:
        """Return the configured values of one row, for all editions. A missing value is None."""
        table = self._table(at, raw, f"write a section [{at}]")
        values = self._values(at, row_keys(operation), table)
        for name, fault in (
            ("path", path_fault(operation, access_mode, values["path"]) if values["path"] is not None else None),
            ("pointer", pointer_fault(values["pointer"]) if values.get("pointer") is not None else None),
        ):
            if fault is not None:
                self._add(f"{at}.{name}", ValueFault(fault, "correct it, or remove the key", value=values[name]))
                values[name] = None
        return values

    def _values(
        self, at: str, known: Mapping[str, Key], table: dict[str, Any], *, inherit: TerminalDefaults | None = None
    ) -> dict[str, Any]:
        """Read the values of one table. A missing value comes from `inherit`, or is the default."""
        self._unknown(at, table, tuple(known))
        values: dict[str, Any] = {}
        for name, key in known.items():
            dotted = f"{at}.{name}"
            source: Source = "file" if name in table else "default"
            if name in table:
                values[name] = self._value(dotted, key, table[name])
            elif inherit is not None and hasattr(inherit, name):
                values[name] = getattr(inherit, name)
                source = "default" if self._sources[f"terminal_defaults.{name}"] == "default" else "terminal_defaults"
            elif key.default is not None:
                values[name] = key.reader(key.default, self._base)
            else:
                values[name] = None
                if inherit is not None and at not in self._with_fault:
                    self._add(dotted, ValueFault("is missing", f"add {name} = … to this section"))
            self._sources[dotted] = source
        return values

    def _value(self, dotted: str, key: Key, raw: object) -> Any:
        try:
            return key.reader(raw, self._base)
        except UnusableValueError as error:
            for fault in error.faults:
                self._add(dotted, fault, secret=key.secret)
            return None if key.default is None else key.reader(key.default, self._base)

    def _table(self, at: str, raw: object, cure: str) -> dict[str, Any]:
        if isinstance(raw, dict):
            return raw
        self._add(at, ValueFault(f"must be a table, is {type_name(raw)}", cure))
        return {}

    def _unknown(self, at: str, table: dict[str, Any], known: Iterable[str]) -> None:
        names = tuple(known)
        for name in table:
            if name not in names:
                dotted = f"{at}.{written_key(name)}" if at else written_key(name)
                self._add(dotted, ValueFault("is not a known key", _nearest(at, name, names)))

    def _add(self, dotted: str, fault: ValueFault, *, secret: bool = False) -> None:
        at = fault.at if fault.at.startswith("[") or not fault.at else f".{fault.at}"
        key = f"{dotted}{at}"
        self._with_fault.add(key)
        file, line, own = self._layers.place(key)
        value = "" if fault.value is None else f"{REDACTED} " if secret else f"{fault.value!r} "
        self.problems.append(ConfigProblem(str(file), own, f"{value}{fault.reason}", fault.cure, line))


def _nearest(at: str, name: str, known: tuple[str, ...]) -> str:
    where = f"[{at}]" if at else "the file"
    if homes := [head for head, names in HOMES.items() if name in names]:
        return f"move it: it belongs below {' or '.join(homes)}"
    near = nearest(name, known)
    if near is not None:
        return f"did you mean {near}? Otherwise remove it"
    return f"remove it; {where} knows: {', '.join(known)}"


def _laid_over(rows: Table, given: Mapping[str, dict[str, Any]]) -> Table:
    return MappingProxyType({operation: replace_row(row, **given[operation]) for operation, row in rows.items()})


def _merge(*layers: Headers) -> Headers:
    """Merge headers. Later headers override earlier ones, and upper and lower case count as equal (RFC 9110, 5.1)."""
    merged: dict[str, HeaderValue] = {}
    for layer in layers:
        replaced = {name.lower() for name in layer}
        merged = {name: value for name, value in merged.items() if name.lower() not in replaced} | dict(layer)
    return MappingProxyType(merged)


# Conflicts between values that are valid individually.

#: Longest path of a Unix socket, in bytes. The path must fit into sockaddr_un with its closing zero byte (unix(7)).
MAX_SOCKET_PATH_BYTES = 107


#: Conflict between the values of some keys: (keys, reason, correction). A conflict is reported at the first key.
Conflict = tuple[tuple[str, ...], str, str]


def _socket_paths(config: Config) -> Iterator[Conflict]:
    size = len(str(config.local_api.admin_socket).encode())
    if size > MAX_SOCKET_PATH_BYTES:
        yield (
            ("local_api.directory",),
            f"makes a socket path of {size} bytes; the system allows {MAX_SOCKET_PATH_BYTES}",
            "choose a shorter directory",
        )


def _one_port_twice(config: Config) -> Iterator[Conflict]:
    """Yield a problem if the metrics have the webhooks' port, because posd could not start."""
    metrics, webhooks = config.metrics.listen, config.webhooks.listen
    if metrics is None or metrics.port != webhooks.port or not metrics.port:
        return
    hosts = {metrics.host, webhooks.host}
    every_ipv4 = "0.0.0.0" in hosts and not any(":" in host for host in hosts)  # noqa: S104
    if len(hosts) == 1 or "::" in hosts or every_ipv4:
        yield (
            ("metrics.listen", "webhooks.listen"),
            f"is the port {metrics.port} of webhooks.listen too: posd cannot listen on it twice",
            "choose another port",
        )


def _print_poll(config: Config) -> Iterator[Conflict]:
    if config.print_.poll_first_seconds > config.print_.poll_max_seconds:
        yield (
            ("print.poll_first_seconds", "print.poll_max_seconds"),
            "is longer than poll_max_seconds",
            "make it the shorter of the two",
        )


def _nats_login(config: Config) -> Iterator[Conflict]:
    for section in ("relay", "collect"):
        nats: NatsConfig = config.section(section)
        if nats.credentials_file is not None and nats.user:
            names = (f"{section}.credentials_file", f"{section}.user")
            yield names, "is a second way to log in", "keep one of them"
        for name, other in (("user", "password_file"), ("certificate", "private_key")):
            if bool(getattr(nats, name)) != bool(getattr(nats, other)):
                names = (f"{section}.{name}", f"{section}.{other}")
                yield names, f"goes together with {other}", "give both, or neither"


def _cloud_address(config: Config) -> Iterator[Conflict]:
    for at, terminal in _terminals(config):
        if terminal.access_mode == "cloud" and not terminal.base_url:
            yield (
                (f"{at}.base_url", at),
                (
                    "is missing: this terminal is called through the cloud, and discovery finds only terminals "
                    "on this network"
                ),
                'write the address of the service, like base_url = "https://HOST"',
            )


def _cloud_callback(config: Config) -> Iterator[Conflict]:
    cloud = next((at for at, terminal in _terminals(config) if terminal.access_mode == "cloud"), None)
    if cloud is not None and not config.webhooks.public_url:
        yield (
            ("webhooks.public_url", "webhooks"),
            f"is missing: {cloud} is called through the cloud, and the service calls back from outside this network",
            'write where it reaches this listener, as in public_url = "https://HOST", or access_mode = "local"',
        )


def _unique_serials(config: Config) -> Iterator[Conflict]:
    first: dict[str, str] = {}
    for at, terminal in _terminals(config):
        key = f"{at}.serial"
        if not terminal.serial:
            continue  # a missing or invalid serial has its own problem
        if terminal.serial in first:
            (file, other), here = (config.layers.origin(at) for at in (first[terminal.serial], key))
            where = "" if file == here[0] else f" of {file}"
            yield (
                (key, first[terminal.serial]),
                f"{terminal.serial!r} is the serial of {other.removesuffix('.serial')}{where} too",
                "give each terminal once, with its own serial",
            )
        else:
            first[terminal.serial] = key


def _unique_addresses(config: Config) -> Iterator[Conflict]:
    """Yield a problem for each terminal with the address of another, because two payments would run on one device."""
    first: dict[object, str] = {}
    for at, terminal in _terminals(config):
        if terminal.access_mode == "cloud" or not terminal.base_url:
            continue  # the cloud service selects the terminal by the serial in the path
        parts = urlsplit(terminal.base_url)
        place = ((parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme), parts.path.rstrip("/"))
        other = first.setdefault((place, tuple(terminal.headers.items())), at)
        if other != at:
            yield (
                (f"{at}.base_url", f"{other}.base_url"),
                f"is the address of {other} too: posd would start two payments on one terminal",
                "give each terminal its own address",
            )


#: Default ports of the schemes of a base_url.
_PORTS: Mapping[str, int] = {"https": 443, "http": 80}


#: Keys that pin a terminal. The second one stays valid if the terminal renews its certificate with the same private
#: key.
PINS = ("fingerprint_sha256", "public_key_sha256")


def _pins(config: Config) -> Iterator[Conflict]:
    for at, terminal in _terminals(config):
        given = [name for name in PINS if getattr(terminal, name)]
        if given and _scheme(terminal) == "http":
            yield (
                (f"{at}.{given[0]}", f"{at}.base_url", f"{at}.scheme", "terminal_defaults.scheme"),
                "cannot be checked: this terminal is called without TLS",
                f"call it over https, or remove {given[0]}",
            )
        if len(given) > 1:
            yield (
                (f"{at}.{given[0]}", f"{at}.{given[1]}"),
                f"is a second pin beside {given[1]}",
                f"keep {given[1]}: it stays right if the certificate is renewed with the same key",
            )


def _name_that_is_not_looked_at(config: Config) -> Iterator[Conflict]:
    """Yield a problem for each server_name that posd never uses: one of a terminal, or the default."""
    for at, terminal in _terminals(config):
        key = f"{at}.server_name"
        if not terminal.server_name or config.sources.get(key) != "file":
            continue
        if _scheme(terminal) == "http":
            yield (
                (key, f"{at}.base_url", f"{at}.scheme", "terminal_defaults.scheme"),
                "cannot be checked: this terminal is called without TLS",
                "call it over https, or remove server_name",
            )
        elif pin := next((name for name in PINS if getattr(terminal, name)), ""):
            yield (
                (key, f"{at}.{pin}"),
                f"is not used: {pin} trusts one certificate under any name",
                "remove one of the two",
            )
    unused = [item for item in config.terminals if _scheme(item) == "http" or item.pin]
    if config.terminal_defaults.server_name and config.terminals and len(unused) == len(config.terminals):
        yield (
            ("terminal_defaults.server_name", "terminals"),
            "is not used: every terminal is called without TLS or is pinned",
            "remove it",
        )


def _search_by_get(config: Config) -> Iterator[Conflict]:
    for access_mode in ACCESS_MODES:
        at = PROFILE_SECTIONS[access_mode]
        row = config.profiles[config.terminal_defaults.edition][access_mode]["search"]
        if row.method == "GET" and f"{{{CLIENT_TRANSACTION_ID}}}" not in row.path:
            yield (
                (f"{at}.search.path", f"{at}.search.method"),
                "does not name the transaction: a GET has no body",
                f"put {{{CLIENT_TRANSACTION_ID}}} into the path",
            )


#: Only these operations may share a path. The acquirer treats the void of an earlier day's payment as a refund.
_GIVE_BACK = frozenset({"void", "refund"})


def _paths_of_their_own(config: Config) -> Iterator[Conflict]:
    """Yield a problem for each row that has the method and path of another row.

    A void or a search could charge the customer.
    """
    for access_mode in ACCESS_MODES:
        section, told = PROFILE_SECTIONS[access_mode], set[str]()
        for profile in config.profiles.values():
            first: dict[tuple[str, str], str] = {}
            for operation, row in profile[access_mode].items():
                other = first.setdefault((row.method, row.path), operation)
                if {other, operation} <= _GIVE_BACK or other == operation or operation in told:
                    continue
                told.add(operation)
                yield (
                    (f"{section}.{operation}.path", f"{section}.{other}.path"),
                    f"is the path of {other} too: a call for {operation} would be one for {other}",
                    "give each its own path",
                )


def _confirmed_for_two_editions(config: Config) -> Iterator[Conflict]:
    """Yield a problem for each confirmed row that has different paths in two editions.

    One confirmation cannot cover both paths.
    """
    for access_mode in ACCESS_MODES:
        editions = {item.edition for item in config.terminals if item.access_mode == access_mode}
        tables = [config.profiles[edition][access_mode] for edition in sorted(editions)]
        for operation in OPERATIONS:
            rows = [table[operation] for table in tables]
            if all(row.confirmed for row in rows) and len({(row.method, row.path) for row in rows}) > 1:
                yield (
                    (f"{PROFILE_SECTIONS[access_mode]}.{operation}.confirmed",),
                    f"confirms the different paths of two editions: {' and '.join(row.path for row in rows)}",
                    "remove it, and commission each terminal: posd terminals commission SERIAL",
                )


#: Headers that the schemes of `auth` write.
_OF_SCHEMES = ("authorization", "timestamp")


def _authentication(config: Config) -> Iterator[Conflict]:
    """Yield problems of `auth` without a code, of an unused code, and of headers that the scheme would overwrite."""
    for at, terminal in _terminals(config):
        code = (f"{at}.business_code", f"{at}.auth", "terminal_defaults.business_code", "terminal_defaults.auth")
        if terminal.auth != "none" and terminal.business_code is None:
            yield (
                code,
                f'is missing: auth = "{terminal.auth}" signs with it',
                'write business_code = {file = "PATH"} or {credential = "NAME"}',
            )
        if terminal.webhook_signature and terminal.secret_of_webhooks is None:
            yield (
                (f"{at}.webhook_secret", f"{at}.webhook_signature", *code, "terminal_defaults.webhook_secret"),
                "is missing, and so is business_code: webhook_signature verifies with one of them",
                'write webhook_secret = {file = "PATH"} or {credential = "NAME"}',
            )
        written = [name for name in terminal.headers if name.lower() in _OF_SCHEMES]
        if terminal.auth != "none" and written:
            yield (
                (f"{at}.headers", "terminal_defaults.headers", "profile.headers", "profile.cloud.headers"),
                f'sets {written[0]}, but auth = "{terminal.auth}" already sets it',
                "remove one of the two",
            )
    unused = all(item.auth == "none" and not item.webhook_signature for item in config.terminals)
    for at, table in (("terminal_defaults", config.terminal_defaults), *_terminals(config)):
        if table.business_code is not None and unused and config.sources[f"{at}.business_code"] == "file":
            yield (
                (f"{at}.business_code", "terminals"),
                "is not used: no terminal has an auth that signs with it",
                'write auth = "hash-encrypt" as the vendor says, or remove it',
            )


CHECKS: tuple[Callable[[Config], Iterator[Conflict]], ...] = (
    _socket_paths,
    _one_port_twice,
    _print_poll,
    _cloud_address,
    _cloud_callback,
    _unique_serials,
    _unique_addresses,
    _pins,
    _name_that_is_not_looked_at,
    _search_by_get,
    _paths_of_their_own,
    _confirmed_for_two_editions,
    _authentication,
    _nats_login,
)


def _terminals(config: Config) -> Iterator[tuple[str, TerminalConfig]]:
    for index, terminal in enumerate(config.terminals):
        yield f"terminals[{index}]", terminal


def _scheme(terminal: TerminalConfig) -> str:
    return urlsplit(terminal.base_url).scheme if terminal.base_url else terminal.scheme
