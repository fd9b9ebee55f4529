"""Every mistake is reported with key, reason and cure. One run reports all mistakes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.config import ConfigError, ConfigProblem, TerminalConfig, load, parse
from posd.config.layers import Layer, Layers
from posd.config.reader import ConfigReader
from posd.config.schema import SECTIONS, keys
from posd.config.show import toml_lines
from posd.config.values import ReaderContext
from tests.rig.tables import every


def problems(text: str, directory: Path) -> list[ConfigProblem]:
    with pytest.raises(ConfigError) as caught:
        parse(text, file=directory / "config.toml")
    return list(caught.value.problems)


AT_A = '[[terminals]]\nserial = "A"\nbase_url = "https://a.example"\n'
PUBLIC = '[webhooks]\npublic_url = "https://a.example"\n'

#: (key, content of the file, part of the reason, part of the cure)
WRONG = [
    # Unknown keys.
    ("mechant", "[mechant]\n", "not a known key", "did you mean merchant?"),
    ("merchant.timezon", '[merchant]\ntimezon = "UTC"', "not a known key", "did you mean timezone?"),
    ("webhooks.zzz", "[webhooks]\nzzz = 1", "not a known key", "[webhooks] knows: listen, advertise_host"),
    (
        "terminal_defaults.serial",
        '[terminal_defaults]\nserial = "A"',
        "not a known key",
        "it belongs below [[terminals]]",
    ),
    ("profile.pre_auth", "[profile.pre_auth]", "not a known key", "did you mean pre-auth?"),
    ("profile.charge.pointer", '[profile.charge]\npointer = ""', "not a known key", "remove it"),
    ("profile.abort.abortable", "[profile.abort]\nabortable = false", "not a known key", "knows: method, path"),
    ("profile.charge.headers", "[profile.charge]\nheaders = {}", "not a known key", "[[terminals]] or [profile] or"),
    # Wrong types.
    ("merchant", 'merchant = "x"', "must be a table, is a string", "write a section [merchant]"),
    ("merchant.id", "[merchant]\nid = 12", "must be a string, is a whole number", "write a string"),
    ("terminals", '[terminals]\nserial = "A"', "must be a list of tables, is a table", "write [[terminals]]"),
    ("terminals[0]", 'terminals = ["A"]', "must be a table, is a string", "[[terminals]]"),
    ("discovery.enabled", '[discovery]\nenabled = "yes"', "must be true or false", "write true or false"),
    ("discovery.serial_keys[1]", '[discovery]\nserial_keys = ["a", 1]', "must be a string", "write a string"),
    ("webhooks.max_body_bytes", "[webhooks]\nmax_body_bytes = true", "must be a whole number", "a whole number"),
    ("database.retention_days", "[database]\nretention_days = 1.5", "must be a whole number", "a whole number"),
    ("print.stuck_seconds", '[print]\nstuck_seconds = "9"', "number of seconds, is a string", "without quotes"),
    ("profile", "profile = 1", "must be a table", "[profile.charge]"),
    ("profile.charge", 'profile.charge = "/x"', "must be a table", "[profile.charge]"),
    ("profile.charge.confirmed", '[profile.charge]\nconfirmed = "yes"', "must be true or false", "true or false"),
    ("profile.void.abortable", '[profile.void]\nabortable = "no"', "must be true or false", "write true or false"),
    ("profile.headers", 'profile.headers = "x"', "must be a table", 'write headers = {NAME = "value"}'),
    ("profile.search.path", '[profile.search]\nmethod = "GET"', "does not name the transaction", "into the path"),
    # Impossible values.
    ("merchant.timezone", '[merchant]\ntimezone = "Ecuador/Quito"', "not a known time zone", "America/Guayaquil"),
    ("merchant.id", '[merchant]\nid = "a\\nb"', "control character", "one line"),
    ("local_api.directory", '[local_api]\ndirectory = ""', "is empty", "write a path"),
    ("local_api.directory", f'[local_api]\ndirectory = "/{"x" * 100}"', "socket path of 112 bytes", "shorter"),
    ("local_api.till_group", '[local_api]\ntill_group = "a b"', "not the name of a group", "group name"),
    ("local_api.language", '[local_api]\nlanguage = "de"', "'de' is not known", "write one of: en, es"),
    ("webhooks.listen", '[webhooks]\nlisten = "localhost:8443"', "no IP address", "ADDRESS:PORT"),
    ("webhooks.listen", '[webhooks]\nlisten = "0.0.0.0:65536"', "no port from 0 to 65535", "ADDRESS:PORT"),
    ("webhooks.listen", '[webhooks]\nlisten = "::1:8443"', "no IP address", "ADDRESS:PORT"),
    (
        "webhooks.advertise_host",
        '[webhooks]\nadvertise_host = "0.0.0.0"',
        "not an address that a terminal",
        "this machine",
    ),
    ("webhooks.advertise_host", '[webhooks]\nadvertise_host = "pos:8443"', "neither a host name", "without scheme"),
    ("webhooks.public_url", '[webhooks]\npublic_url = "http://a.example"', "begin with https://", "https://HOST"),
    ("webhooks.max_body_bytes", "[webhooks]\nmax_body_bytes = 10", "10 is out of range", "from 65536 to"),
    ("discovery.interfaces[1]", '[discovery]\ninterfaces = ["10.0.0.1", "10.0.0.0/8"]', "not an IP address", "a mask"),
    ("discovery.interfaces[1]", '[discovery]\ninterfaces = ["::1", "0::1"]', "in the list twice", "remove one"),
    ("discovery.service_types[0]", '[discovery]\nservice_types = ["_x._tcp"]', "not a DNS-SD service", "the full name"),
    ("discovery.service_types", "[discovery]\nservice_types = []", "is empty", "at least 1"),
    ("discovery.serial_keys[0]", '[discovery]\nserial_keys = ["a=b"]', "key of a TXT record", "without '='"),
    ("amounts.decimals", "[amounts]\ndecimals = 5", "5 is out of range", "from 0 to 4"),
    ("amounts.max_amount", "[amounts]\nmax_amount = 5000.5", "is a number", "in quotes"),
    ("amounts.max_amount", "[amounts]\nmax_amount = '5,000'", "must be a decimal string", "in quotes"),
    ("amounts.max_amount", "[amounts]\nmax_amount = '0.00'", "is 0", "in quotes"),
    ("reconcile.settle_seconds", "[reconcile]\nsettle_seconds = nan", "out of range", "from 1 to"),
    ("logging.level", '[logging]\nlevel = "verbose"', "'verbose' is not known", "debug, info, warning, error"),
    ("metrics.textfile", '[metrics]\ntextfile = "/x/posd.txt"', "does not end in .prom", "/run/posd/posd.prom"),
    ("timezone", 'timezone = "UTC"', "not a known key", "it belongs below [merchant]"),
    ("merchant.metadata", "[merchant]\nmetadata = true", "not a known key", "it belongs below [relay]"),
    ("relay.listen", '[relay]\nlisten = ":1"', "not a known key", "it belongs below [webhooks] or [metrics]"),
    ("terminal_defaults.scheme", '[terminal_defaults]\nscheme = "ftp"', "is not known", "https, http"),
    ("terminals[0].serial", "[[terminals]]", "is missing", "add serial ="),
    ("terminals[0].serial", '[[terminals]]\nserial = ""', "not a serial number", "printed on the terminal"),
    (
        "terminals[0].fingerprint_sha256",
        '[[terminals]]\nserial = "A"\nfingerprint_sha256 = "ab"',
        "64 hex",
        "posd terminals pin",
    ),
    ("profile.void.path", '[profile.void]\npath = "void"', "not an absolute path", "correct it"),
    ("profile.void.path", '[profile.void]\npath = "/{id}"', "unknown placeholder {id}", "correct it"),
    ("profile.void.method", '[profile.void]\nmethod = "PUT"', "'PUT' is not known", "GET, POST"),
    ("profile.cloud.void.path", '[profile.cloud.void]\npath = "/void"', "lacks the placeholder", "correct it"),
    (
        "profile.cloud.abort.path",
        '[profile.cloud.abort]\npath = "https://x/{terminal_serial}"',
        "not an absolute path",
        "correct it",
    ),
    ("profile.headers.Host", '[profile]\nheaders = {Host = "a"}', "posd sets itself", "remove it"),
    ("profile.search.pointer", '[profile.search]\npointer = "x"', "not a JSON Pointer", "correct it"),
    # Files.
    ("terminal_defaults.ca_file", '[terminal_defaults]\nca_file = "no.pem"', "No such file", "correct the path"),
    ("profile.cloud.headers.A", '[profile.cloud]\nheaders = {A = {file = "no"}}', "No such file", "make it readable"),
    # Conflicts between values.
    (
        "terminals[1].base_url",
        f'{PUBLIC}[[terminals]]\nserial = "A"\n[[terminals]]\nserial = "B"\naccess_mode = "cloud"',
        "is missing: this terminal is called through the cloud",
        'base_url = "https://HOST"',
    ),
    (
        "terminals[0].base_url",
        f'{PUBLIC}[terminal_defaults]\naccess_mode = "cloud"\n[[terminals]]\nserial = "A"',
        "discovery finds only terminals on this network",
        "the address of the service",
    ),
    (
        "webhooks.public_url",
        '[[terminals]]\nserial = "A"\n'
        + "".join(
            f'[[terminals]]\nserial = "{serial}"\naccess_mode = "cloud"\nbase_url = "https://a.example"\n'
            for serial in "BC"
        ),
        "is missing: terminals[1] is called through the cloud, and the service calls back from outside",
        'public_url = "https://HOST"',
    ),
    ("webhooks.certificate", '[webhooks]\ncertificate = "there"', "without private_key", "remove both"),
    ("webhooks.private_key", '[webhooks]\nprivate_key = "there"', "without certificate", "remove both"),
    *(
        (
            "metrics.listen",
            f'[metrics]\nlisten = "{metrics}:8443"\n[webhooks]\nlisten = "{webhooks}:8443"',
            "is the port 8443 of webhooks.listen too",
            "another port",
        )
        for metrics, webhooks in (("127.0.0.1", "0.0.0.0"), ("127.0.0.1", "[::]"), ("10.0.0.9", "10.0.0.9"))
    ),
    ("print.poll_first_seconds", "[print]\npoll_first_seconds = 31", "longer than poll_max_seconds", "shorter"),
    (
        "terminals[2].serial",
        '[[terminals]]\nserial = "A"\n[[terminals]]\nserial = "B"\n[[terminals]]\nserial = "A"',
        "is the serial of terminals[0] too",
        "own serial",
    ),
    *(
        (
            "terminals[1].base_url",
            f'{AT_A}[[terminals]]\nserial = "B"\nbase_url = "{url}"',
            "is the address of terminals[0] too: posd would start two payments on one terminal",
            "its own address",
        )
        for url in ("https://a.example", "https://A.example.:443/")
    ),
    # With the path of another operation, a void or a search would charge.
    *(
        (
            f"profile.{operation}.path",
            f'[profile.{operation}]\nmethod = "POST"\npath = "/terminal/v1/async/charge"',
            f"is the path of charge too: a call for {operation} would be one for charge",
            "its own path",
        )
        for operation in ("pre-auth", "capture", "re-auth", "post-tip", "void", "refund", "abort", "search", "print")
    ),
    (
        "profile.cloud.void.path",
        '[profile.cloud.charge]\npath = "/terminal/v1/{terminal_serial}/async/void"',
        "is the path of charge too",
        "its own path",
    ),
    (
        "terminals[0].fingerprint_sha256",
        f'[[terminals]]\nserial = "A"\nscheme = "http"\nfingerprint_sha256 = "{"ab" * 32}"',
        "called without TLS",
        "over https",
    ),
    (
        "terminals[0].fingerprint_sha256",
        f'[[terminals]]\nserial = "A"\npublic_key_sha256 = "{"ab" * 32}"\nfingerprint_sha256 = "{"cd" * 32}"',
        "is a second pin beside public_key_sha256",
        "keep public_key_sha256",
    ),
    # Problems of calls to terminals: editions, authentication, units.
    ("terminals[0].auth", '[[terminals]]\nserial = "A"\nauth = "basic"', "is not known", "none, hash-encrypt, hmac"),
    ("hash_encrypt.key_separator", '[hash_encrypt]\nkey_separator = ""', "not a separator", "visible ASCII"),
    ("hash_encrypt.timestamp_unit", '[hash_encrypt]\ntimestamp_unit = "m"', "is not known", "s, ms"),
    (
        "terminals[0].business_code",
        '[[terminals]]\nserial = "A"\nauth = "hmac"',
        'is missing: auth = "hmac" signs with it',
        "{file = ",
    ),
    (
        "terminal_defaults.business_code",
        '[terminal_defaults]\nbusiness_code = {file = "secret"}\n[[terminals]]\nserial = "A"',
        "is not used: no terminal has an auth",
        "auth = ",
    ),
    (
        "terminals[0].business_code",
        '[[terminals]]\nserial = "A"\nauth = "hmac"\nbusiness_code = "hunter2"',
        "is a text, and secrets may not be in this file",
        "{file = ",
    ),
    (
        "terminals[0].business_code",
        '[[terminals]]\nserial = "A"\nauth = "hmac"\nbusiness_code = {file = "no"}',
        "No such file",
        "readable",
    ),
    (
        "terminals[0].webhook_secret",
        '[[terminals]]\nserial = "A"\nwebhook_signature = "wh-secret-body-hex"',
        "is missing, and so is business_code",
        "{file = ",
    ),
    (
        "terminals[0].headers",
        '[[terminals]]\nserial = "A"\nauth = "hmac"\nbusiness_code = {file = "secret"}\nheaders = {TimeStamp = "1"}',
        'sets TimeStamp, but auth = "hmac" already sets it',
        "remove one",
    ),
    (
        "profile.abort.confirmed",
        '[[terminals]]\nserial = "A"\n[[terminals]]\nserial = "B"\nedition = "2026"\n[profile.abort]\nconfirmed = true',
        "confirms the different paths of two editions: /terminal/v1/sync/abort and /terminal/v1/abort",
        "posd terminals commission",
    ),
]

URLS = [
    ("ftp://10.0.0.9", "begin with https:// or http://"),
    ("10.0.0.9:6869", "begin with https:// or http://"),
    ("https://", "no usable host"),
    ("https://10.0.0.999", "no usable host"),
    ("https://10.0.0.9:0", "no usable host and port"),
    ("https://10.0.0.9:70000", "not a URL"),
    ("https://[::1", "not a URL"),
    ("https://10.0.0.9/?a=b", "more than a host and a path"),
    ("https://10.0.0.9/#a", "more than a host and a path"),
    ("https://10.0.0.9/a b", "more than a host and a path"),
    ("https://user:hunter2@10.0.0.9", "user name or password"),
]


@every(("key", "text", "reason", "cure"), WRONG, ids=[f"{row[0]}-{row[2][:24]}" for row in WRONG])
def test_each_mistake_is_reported_once_at_its_key(tmp_path: Path, key: str, text: str, reason: str, cure: str) -> None:
    (tmp_path / "there").touch()
    (tmp_path / "secret").write_text("hunter2")
    (problem,) = problems(text, tmp_path)
    assert (problem.key, problem.file) == (key, str(tmp_path / "config.toml"))
    assert reason in problem.reason
    assert cure in problem.cure
    assert "hunter2" not in str(problem)
    where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
    assert str(problem) == f"{where}: {key} {problem.reason}; {problem.cure}"


@pytest.mark.parametrize(("url", "reason"), URLS, ids=[url for url, _ in URLS])
def test_an_invalid_base_url_is_refused(tmp_path: Path, url: str, reason: str) -> None:
    (problem,) = problems(f'[[terminals]]\nserial = "A"\nbase_url = "{url}"', tmp_path)
    assert problem.key == "terminals[0].base_url"
    assert reason in problem.reason
    assert "hunter2" not in str(problem)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = """
        mechant = 1
        [webhooks]
        listen = "x"
        certificate = "no.crt"
        private_key = "no.key"
        [discovery]
        interfaces = ["a", "b"]
        [print]
        poll_first_seconds = -1
        [[terminals]]
        access_mode = "cloud"
        headers = {Host = "a", "b c" = "d", Ok = {file = "none"}}
        [[terminals]]
        serial = "A"
        base_url = "ftp://x"
        [[terminals]]
        serial = "A"
        fingerprint_sha256 = "x"
        [profile]
        headers = {TE = "x"}
        [profile.charge]
        path = "x"
        [profile.cloud.void]
        method = "PUT"
    """
    assert [problem.key for problem in problems(text, tmp_path)] == [
        "mechant",
        "webhooks.listen",
        "webhooks.certificate",
        "webhooks.private_key",
        "discovery.interfaces[0]",
        "discovery.interfaces[1]",
        "print.poll_first_seconds",
        "profile.headers.TE",
        "profile.charge.path",
        "profile.cloud.void.method",
        "terminals[0].serial",
        "terminals[0].headers.Host",
        "terminals[0].headers",
        "terminals[0].headers.Ok",
        "terminals[1].base_url",
        "terminals[2].fingerprint_sha256",
        "terminals[0].base_url",
        "webhooks.public_url",
        "terminals[2].serial",
    ]


def test_one_mistake_causes_no_second_problem(tmp_path: Path) -> None:
    """posd does not compare a wrong value with other values, because a default replaces the wrong value."""
    (tmp_path / "there").touch()
    text = '[webhooks]\ncertificate = "there"\nprivate_key = "none"'
    assert [problem.key for problem in problems(text, tmp_path)] == ["webhooks.private_key"]
    text = '[terminal_defaults]\nscheme = "htp"\n[[terminals]]\nserial = "A"\nbase_url = "http://10.0.0.9"'
    assert [problem.key for problem in problems(text, tmp_path)] == ["terminal_defaults.scheme"]
    cloud = '[terminal_defaults]\naccess_mode = "cloud"\n'
    text = f'[webhooks]\npublic_url = "http://a.example"\n{cloud}[[terminals]]\nserial = "A"\nbase_url = "x"'
    assert [problem.key for problem in problems(text, tmp_path)] == ["webhooks.public_url", "terminals[0].base_url"]
    text = f"terminals = [1]\nwebhooks = 1\n{cloud}"
    assert [problem.key for problem in problems(text, tmp_path)] == ["webhooks", "terminals[0]"]
    text = "[[terminals]]\nserial = 1\n[[terminals]]\nserial = 1"
    assert [problem.key for problem in problems(text, tmp_path)] == ["terminals[0].serial", "terminals[1].serial"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[merchant\n", "is not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 10)"),
        (b'[merchant]\nid = "a"\nid = "b"\n', "(at line 3, column 9)"),
        (b"# \xff\n", "is not UTF-8 (byte 2)"),
        (b"a = 1\n\xef\xbb\xbf", "is not valid TOML"),
    ],
)
def test_a_file_that_is_not_toml_is_reported(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert reason in problem.reason
    assert problem.key == ""


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b'\xef\xbb\xbf[merchant]\r\nid = "12"\r\n')
    assert load(file).merchant.id == "12"


TOML_VALUES = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.dates()
    | st.sampled_from(["10.0.0.1", "https://x", "A"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
SCHEMA = {section: list(keys(kind)) for section, kind in SECTIONS.items()}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{
                name: st.dictionaries(st.sampled_from(known), TOML_VALUES, max_size=4) for name, known in SCHEMA.items()
            },
            "terminals": st.lists(
                st.dictionaries(st.sampled_from(list(keys(TerminalConfig))), TOML_VALUES), max_size=3
            ),
            "profile": st.dictionaries(
                st.sampled_from(["charge", "search", "print", "cloud", "headers", "x"]), TOML_VALUES
            ),
        },
    )
)
def test_any_file_gives_a_configuration_or_a_list_of_problems(document: dict[str, object]) -> None:
    file = Path("/etc/posd/config.toml")
    reading = ConfigReader(Layers(file, [Layer(file, document)]), ReaderContext(file.parent, check_files=False))
    config = reading.config(document)
    reading.cross_check(config)
    for problem in reading.problems:
        assert problem.reason
        assert problem.cure
    if not reading.problems:
        text = "\n".join(line for line, _ in toml_lines(config))
        again = parse(text, file=config.file, check_files=False)
        assert again.webhooks == config.webhooks
        assert again.reconcile == config.reconcile


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not exist; write it .*--config or POSD_CONFIG"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        load(tmp_path)


def test_an_unreadable_certificate_without_a_key_is_reported_with_both_faults(tmp_path: Path) -> None:
    found = problems('[webhooks]\ncertificate = "nope.crt"', tmp_path)
    assert [problem.key for problem in found] == ["webhooks.certificate", "webhooks.certificate"]
    assert {"cannot be read", "without private_key"} == {
        word for word in ("cannot be read", "without private_key") for problem in found if word in problem.reason
    }
