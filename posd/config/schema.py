"""Keys of the configuration file, each with name, reader and default. The classes have the structure of the file.

Each field has a `Key` with the reader, and with the default as written in the file.
"""

from collections.abc import Mapping
from decimal import Decimal
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from posd.base.money import AMOUNT_UNITS, MAX_FRACTION_DIGITS, AmountUnit
from posd.base.operations import OPERATIONS
from posd.base.text import Language
from posd.config import values as read
from posd.config.layers import Layers
from posd.config.profile import ACCESS_MODES, EDITION_NAMES, AccessMode, Edition, Method, Profiles
from posd.config.values import HeaderValue, ListenAddress, Reader

#: Authentication of calls to a terminal, in addition to the headers.
Auth = Literal["none", "hash-encrypt", "hmac"]
#: Kind of signature of a terminal's webhooks (docs/guides/real-terminals.md).
WebhookSignature = Literal["wh-business-code-base64", "wh-secret-body-hex", "wh-secret-body-dot-id-hex"]

Source = Literal["file", "profile.cloud", "profile", "terminal_defaults", "default"]

#: Section of the terminal profile for each access mode.
PROFILE_SECTIONS: Final[Mapping[AccessMode, Literal["profile", "profile.cloud"]]] = {
    "local": "profile",
    "cloud": "profile.cloud",
}

#: A day, in seconds: the longest useful wait.
DAY = 86_400

#: Smallest value of `webhooks.max_body_bytes`. A final event has some 2,000 bytes, and echoes up to 16 KiB of metadata.
#: A terminal may escape many characters of the metadata. A smaller limit would refuse real events. Only a larger limit
#: fits metadata in which nearly every character is escaped.
LEAST_BODY_BYTES = 65_536
#: Largest value of `webhooks.max_body_bytes`. posd holds bodies in memory while it reads them.
MOST_BODY_BYTES = 16_777_216


class Key(msgspec.Struct, frozen=True):
    """Reader of one key. `default`: as written in the file; None for a required key.

    `secret`: whether the value may contain a secret, even by mistake. Then no problem quotes the value.
    """

    reader: Reader[Any]
    default: object = None
    secret: bool = False


def keys(section: type[Any]) -> Mapping[str, Key]:
    """Return the keys of a section in order, own keys before inherited ones."""
    declared = (item for kind in section.__mro__ for item in get_annotations(kind).items())
    return {name: bears.__metadata__[0] for name, bears in declared if hasattr(bears, "__metadata__")}


_group = read.matching(
    r"([a-z_][a-z0-9_-]{0,30}\$?)?", "the name of a group", 'a group name, or "" for the daemon\'s own'
)
_serial = read.matching(r"[!-~]([ -~]{0,62}[!-~])?", "a serial number", "the serial as printed on the terminal")
_service_type = read.matching(
    r"(_[A-Za-z0-9-]{1,15}\._sub\.)?_[A-Za-z0-9-]{1,15}\._(tcp|udp)\.local\.",
    "a DNS-SD service type",
    "the full name, like _card-terminal._tcp.local.",
)
_txt_key = read.matching(r"[!-<>-~]{1,32}", "the key of a TXT record", "visible ASCII characters without '='")
_document_member = read.matching(
    r"(?!(printJobId|externalReference|webhookUrl)$)[!-~]{0,64}",
    "a place for the document in the request",
    'an unused name, as in "document", or "" to put the members of the document beside the others',
)
_currency = read.matching(
    r"([A-Z]{3})?", "a currency", 'the three letters of ISO 4217 as the terminals write them, like "USD", or "" for any'
)
_amount_member = read.matching(
    r"(?!extra_taxes$)[A-Za-z_][A-Za-z0-9_]{0,63}",
    "the name of a member of an amount",
    'a name, as in "service_charge"',
)
_separator = read.matching(r"[!-~]{1,8}", "a separator", 'one to eight visible ASCII characters, as in "___"')
#: Allowed characters of a merchant, a lane and a stream, which are parts of a NATS subject.
SUBJECT_PART: Final = r"[A-Za-z0-9_-]{1,64}"
_lane = read.matching(
    rf"({SUBJECT_PART})?", "a part of a subject", 'letters, digits, "-" and "_", or "" for the host\'s name'
)
_stream = read.matching(SUBJECT_PART, "the name of a stream", 'letters, digits, "-" and "_", like "POSD"')
_text_member = read.matching(r"[!-~]{1,64}", "the name of a member", 'a name, as in "text"')


class MerchantConfig(msgspec.Struct, frozen=True):
    """Section `[merchant]`."""

    id: Annotated[str, Key(read.text, "")]
    timezone: Annotated[str, Key(read.timezone, "America/Guayaquil")]
    currency: Annotated[str, Key(_currency, "")]


class LocalApiConfig(msgspec.Struct, frozen=True):
    """`[local_api]`: the Unix sockets.

    An empty group is the daemon's own group. `language`: language of the cashier's texts.
    """

    directory: Annotated[Path, Key(read.path, "/run/posd")]
    till_group: Annotated[str, Key(_group, "posd-till")]
    admin_group: Annotated[str, Key(_group, "posd-admin")]
    feed_group: Annotated[str, Key(_group, "posd-feed")]
    language: Annotated[str, Key(read.one_of(*Language), "en")]

    @property
    def till_socket(self) -> Path:
        """The socket of the tills."""
        return self.directory / "till.sock"

    @property
    def admin_socket(self) -> Path:
        """The socket of the operators."""
        return self.directory / "admin.sock"

    @property
    def feed_socket(self) -> Path:
        """The socket that serves only the feed."""
        return self.directory / "feed.sock"


class WebhooksConfig(msgspec.Struct, frozen=True):
    """`[webhooks]`: the listener that terminals call. Without a certificate, the pair of `posd tls init` is used."""

    listen: Annotated[ListenAddress, Key(read.listen_address, "0.0.0.0:8443")]
    advertise_host: Annotated[str, Key(read.advertised_host, "")]
    public_url: Annotated[str, Key(read.url("https"), "", secret=True)]
    certificate: Annotated[Path | None, Key(read.optional(read.readable_file), "")]
    private_key: Annotated[Path | None, Key(read.optional(read.readable_file), "", secret=True)]
    max_body_bytes: Annotated[int, Key(read.whole(LEAST_BODY_BYTES, MOST_BODY_BYTES), LEAST_BODY_BYTES)]


class DatabaseConfig(msgspec.Struct, frozen=True):
    """`[database]`, and the files beside the database."""

    path: Annotated[Path, Key(read.path, "/var/lib/posd/posd.db")]
    retention_days: Annotated[int, Key(read.whole(0, 36_500), 400)]

    @property
    def callback_key(self) -> Path:
        """Secret key of the callback tokens."""
        return self.path.with_name("callback.key")

    @property
    def alive(self) -> Path:
        """File whose modification time is posd's last sign of life while payments are open."""
        return self.path.with_name(self.path.name + ".alive")

    @property
    def witness(self) -> Path:
        """File of recent starts, to detect a database that has gone back in time."""
        return self.path.with_name(self.path.name + ".witness")

    @property
    def backups(self) -> Path:
        """Folder of the timer's backups."""
        return self.path.with_name("backups")

    @property
    def tls_directory(self) -> Path:
        """Folder of the files from `posd tls init`."""
        return self.path.with_name("tls")

    @property
    def lock(self) -> Path:
        """File that the running daemon locks."""
        return self.path.with_name(self.path.name + ".lock")


class DiscoveryConfig(msgspec.Struct, frozen=True):
    """`[discovery]`: mDNS. Without interfaces, all of them are used."""

    enabled: Annotated[bool, Key(read.boolean, True)]
    service_types: Annotated[tuple[str, ...], Key(read.each(_service_type, least=1), ["_card-terminal._tcp.local."])]
    serial_keys: Annotated[tuple[str, ...], Key(read.each(_txt_key), ["serial", "sn", "serialNumber"])]
    interfaces: Annotated[tuple[str, ...], Key(read.each(read.address), [])]
    check_seconds: Annotated[float, Key(read.seconds(0, DAY), 600)]


class ReconcileConfig(msgspec.Struct, frozen=True):
    """`[reconcile]`: times after which posd searches on the terminal.

    `probe_with_abort`: whether posd also sends an abort to find out whether anything runs.
    """

    first_event_grace_seconds: Annotated[float, Key(read.seconds(0.1, DAY), 10)]
    stall_seconds: Annotated[float, Key(read.seconds(1, DAY), 300)]
    stall_after_request_seconds: Annotated[float, Key(read.seconds(1, DAY), 60)]
    settle_seconds: Annotated[float, Key(read.seconds(1, DAY), 60)]
    probe_with_abort: Annotated[bool, Key(read.boolean, False)]


class AmountsConfig(msgspec.Struct, frozen=True):
    """`[amounts]`: limits on a till's amounts.

    `members`, `extra_taxes`: further names that a till may send. `capture_over_percent`: percentage by which a capture
    may exceed the reservation. `partial_void`: whether a void may be for a part. `decimals`: number of digits after the
    point; None: as many as the currency has. `max_amount`: the largest sum of one operation.
    """

    members: Annotated[tuple[str, ...], Key(read.each(_amount_member), [])]
    extra_taxes: Annotated[tuple[str, ...], Key(read.each(_amount_member), [])]
    capture_over_percent: Annotated[int, Key(read.whole(0, 100), 0)]
    partial_void: Annotated[bool, Key(read.boolean, False)]
    decimals: Annotated[int | None, Key(read.optional(read.whole(0, MAX_FRACTION_DIGITS)), "")]
    max_amount: Annotated[Decimal | None, Key(read.optional(read.money), "")]


class ClockConfig(msgspec.Struct, frozen=True):
    """`[clock]`: largest step of the wall clock that is trusted."""

    max_step_seconds: Annotated[float, Key(read.seconds(1, DAY), 300)]


class PrintConfig(msgspec.Struct, frozen=True):
    """`[print]`: polling of print jobs, and the place of the document in the request."""

    poll_first_seconds: Annotated[float, Key(read.seconds(0.1, DAY), 2)]
    poll_max_seconds: Annotated[float, Key(read.seconds(0.1, DAY), 30)]
    stuck_seconds: Annotated[float, Key(read.seconds(1, DAY), 300)]
    document_member: Annotated[str, Key(_document_member, "document")]
    text_member: Annotated[str, Key(_text_member, "text")]


class TerminalDefaults(msgspec.Struct, frozen=True):
    """`[terminal_defaults]`: defaults of all terminals."""

    access_mode: Annotated[AccessMode, Key(read.one_of(*ACCESS_MODES), "local")]
    scheme: Annotated[Literal["https", "http"], Key(read.one_of("https", "http"), "https")]
    ca_file: Annotated[Path | None, Key(read.optional(read.readable_file), "")]
    trust: Annotated[Literal["", "system"], Key(read.one_of("", "system"), "")]
    server_name: Annotated[str, Key(read.certificate_name, "")]
    connect_timeout_seconds: Annotated[float, Key(read.seconds(0.1, 60), 3)]
    reply_timeout_seconds: Annotated[float, Key(read.seconds(0.1, 600), 20)]
    headers: Annotated[Mapping[str, HeaderValue], Key(read.header_table, {}, secret=True)]
    edition: Annotated[Edition, Key(read.one_of(*EDITION_NAMES), "classic")]
    auth: Annotated[Auth, Key(read.one_of(*get_args(Auth)), "none", secret=True)]
    business_code: Annotated[HeaderValue | None, Key(read.secret, "", secret=True)]
    amount_unit: Annotated[AmountUnit, Key(read.one_of(*AMOUNT_UNITS), "main")]
    answer_amount_unit: Annotated[AmountUnit | Literal[""], Key(read.one_of("", *AMOUNT_UNITS), "")]
    webhook_signature: Annotated[
        WebhookSignature | Literal[""], Key(read.one_of("", *get_args(WebhookSignature)), "", secret=True)
    ]
    webhook_secret: Annotated[HeaderValue | None, Key(read.secret, "", secret=True)]

    @property
    def unit_of_answers(self) -> AmountUnit:
        """Unit of the amounts that the terminal sends."""
        return self.answer_amount_unit or self.amount_unit

    @property
    def secret_of_webhooks(self) -> HeaderValue | None:
        """Secret for checking the terminal's webhook signatures."""
        return self.webhook_secret or self.business_code


class HashEncryptConfig(msgspec.Struct, frozen=True):
    """`[hash_encrypt]`: details of this authentication scheme that are unclear in the vendor's documents."""

    key_separator: Annotated[str, Key(_separator, "___")]
    timestamp_unit: Annotated[Literal["s", "ms"], Key(read.one_of("s", "ms"), "s")]
    window_seconds: Annotated[int, Key(read.whole(1, DAY), 300)]
    key_position: Annotated[Literal["last", "first"], Key(read.one_of("last", "first"), "last")]
    minute_utc_offset_minutes: Annotated[int, Key(read.whole(-840, 840), 0)]


class TerminalConfig(TerminalDefaults, frozen=True):
    """One `[[terminals]]`, with the defaults filled in. `base_url` is "" for a discovered terminal.

    `headers`: all headers for the terminal, from the defaults, the profile and its own section. `hash_encrypt`: the
    section `[hash_encrypt]`.
    """

    serial: Annotated[str, Key(_serial)]
    base_url: Annotated[str, Key(read.url("https", "http"), "", secret=True)]
    fingerprint_sha256: Annotated[str, Key(read.fingerprint, "")]
    public_key_sha256: Annotated[str, Key(read.fingerprint, "")]
    hash_encrypt: HashEncryptConfig

    @property
    def pin(self) -> "Pin | None":
        """Required certificate or key of the terminal, or None if a CA is trusted."""
        if self.public_key_sha256:
            return Pin("public key", self.public_key_sha256)
        return Pin("certificate", self.fingerprint_sha256) if self.fingerprint_sha256 else None

    @property
    def trusts_system(self) -> bool:
        """Whether the system's CAs are trusted for the terminal.

        The operator must have configured `trust` or an address, because any device on the network can announce a
        serial.
        """
        named = self.trust == "system" or bool(self.base_url)
        return named and self.ca_file is None and self.pin is None


class Pin(msgspec.Struct, frozen=True):
    """SHA-256 (64 hex digits, lower case) of the trusted certificate, or of its public key (SPKI, DER)."""

    kind: Literal["certificate", "public key"]
    sha256: str


class NatsConfig(msgspec.Struct, frozen=True):
    """NATS servers and stream. The connecting process reads the files. The daemon does not open these files."""

    servers: Annotated[tuple[str, ...], Key(read.each(read.url("tls", "nats")), [], secret=True)]
    stream: Annotated[str, Key(_stream, "POSD")]
    credentials_file: Annotated[Path | None, Key(read.optional(read.path), "", secret=True)]
    user: Annotated[str, Key(read.text, "", secret=True)]
    password_file: Annotated[Path | None, Key(read.optional(read.path), "", secret=True)]
    certificate: Annotated[Path | None, Key(read.optional(read.path), "")]
    private_key: Annotated[Path | None, Key(read.optional(read.path), "", secret=True)]
    ca_file: Annotated[Path | None, Key(read.optional(read.path), "")]
    metrics_listen: Annotated[ListenAddress | None, Key(read.optional(read.listen_address), "")]


class RelayConfig(NatsConfig, frozen=True):
    """`[relay]`: read by `posd relay`."""

    lane: Annotated[str, Key(_lane, "")]
    batch: Annotated[int, Key(read.whole(1, 500), 100)]
    state_seconds: Annotated[float, Key(read.seconds(1, DAY), 60)]
    metadata: Annotated[bool, Key(read.boolean, False)]


class CollectConfig(NatsConfig, frozen=True):
    """`[collect]`: read by `posd collect`, at head office. With an empty `dsn`, libpq's environment applies."""

    dsn: Annotated[str, Key(read.text, "", secret=True)]


class MetricsConfig(msgspec.Struct, frozen=True):
    """`[metrics]`. Without `listen` and `textfile`, the metrics are served only on the till socket."""

    listen: Annotated[ListenAddress | None, Key(read.optional(read.listen_address), "")]
    textfile: Annotated[Path | None, Key(read.optional(read.textfile), "")]
    textfile_seconds: Annotated[float, Key(read.seconds(1, DAY), 60)]


class LoggingConfig(msgspec.Struct, frozen=True):
    """Section `[logging]`."""

    level: Annotated[str, Key(read.one_of("debug", "info", "warning", "error"), "info")]


class Config(msgspec.Struct, frozen=True):
    """The configuration in force. `sources`: dotted key -> origin of its value. `layers`: the files.

    `profile_headers`: access mode -> headers that the profile has for it.
    """

    file: Path
    merchant: MerchantConfig
    local_api: LocalApiConfig
    webhooks: WebhooksConfig
    database: DatabaseConfig
    discovery: DiscoveryConfig
    reconcile: ReconcileConfig
    amounts: AmountsConfig
    clock: ClockConfig
    print_: PrintConfig
    terminal_defaults: TerminalDefaults
    terminals: tuple[TerminalConfig, ...]
    profiles: Profiles
    profile_headers: Mapping[AccessMode, Mapping[str, HeaderValue]]
    hash_encrypt: HashEncryptConfig
    relay: RelayConfig
    collect: CollectConfig
    metrics: MetricsConfig
    logging: LoggingConfig
    sources: Mapping[str, Source]
    layers: Layers

    def section(self, name: str) -> Any:
        """Return a section by its name in the file: one of `SECTIONS`."""
        return getattr(self, "print_" if name == "print" else name)


#: Sections that are plain tables of keys: name in the file -> class. The field of `print` is named `print_`.
SECTIONS: Mapping[str, type[Any]] = {
    name.removesuffix("_"): kind
    for name, kind in get_annotations(Config).items()
    if isinstance(kind, type) and keys(kind)
}

#: Keys of `[profile]` and `[profile.cloud]` that are not rows.
PROFILE_KEYS: Final[Mapping[str, Key]] = {"headers": Key(read.header_table, {}, secret=True)}

#: Keys of every row of the profile.
ROW_KEYS: Final[Mapping[str, Key]] = {
    "method": Key(read.one_of(*get_args(Method)), None),
    "path": Key(read.text, None),
    "confirmed": Key(read.boolean, None),
}
#: Additional keys of some rows.
START_KEYS: Final[Mapping[str, Key]] = {"abortable": Key(read.boolean, None), "errors_in_2xx": Key(read.boolean, None)}
SEARCH_KEYS: Final[Mapping[str, Key]] = {"pointer": Key(read.text, None), "paged": Key(read.boolean, None)}


def row_keys(operation: str) -> Mapping[str, Key]:
    """Return the keys that the configuration may replace in the row of an operation."""
    return {**ROW_KEYS, **(SEARCH_KEYS if operation == "search" else START_KEYS if operation in OPERATIONS else {})}
