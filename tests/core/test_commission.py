"""A commissioning counts like `confirmed = true`.

A commissioning counts only for the profile's version at the time of the commissioning.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from posd.config import HeaderValue, TerminalConfig
from posd.config.profile import EDITIONS, OperationRow
from posd.config.schema import HashEncryptConfig
from posd.terminals.identity import Commission, Part, profile_version, vouched
from tests.rig.tables import every

TERMINAL = TerminalConfig(
    serial="SN-1",
    base_url="",
    fingerprint_sha256="",
    public_key_sha256="",
    access_mode="local",
    scheme="https",
    ca_file=None,
    trust="",
    server_name="",
    connect_timeout_seconds=3,
    reply_timeout_seconds=20,
    headers={"X-Key": HeaderValue(value="one")},
    edition="classic",
    auth="none",
    business_code=None,
    amount_unit="main",
    answer_amount_unit="",
    webhook_signature="",
    webhook_secret=None,
    hash_encrypt=HashEncryptConfig("___", "s", 300, "last", 0),
)
LOCAL, CLOUD = EDITIONS["classic"]["local"], EDITIONS["classic"]["cloud"]
NOW = profile_version(TERMINAL, LOCAL)


def seen(*proven: Part, profile: str = NOW) -> Commission:
    return Commission("SN-1", "2026-11-20T10:42:00.000Z", "Ana", "new", None, proven, profile)


def test_a_row_is_confirmed_by_the_configuration_or_by_commissioning_its_profile() -> None:
    sets = [(), (Part.ABORT,), (Part.SEARCH,), (Part.ABORT, Part.SEARCH), tuple(set(Part) - {Part.ABORT, Part.SEARCH})]
    for operation, confirmed, proven, profile in product(("abort", "search"), (False, True), sets, (NOW, "another")):
        row = replace(LOCAL[operation], confirmed=confirmed)
        expected = confirmed or (operation in proven and profile == NOW)
        assert vouched(operation, row, NOW, seen(*proven, profile=profile)) == expected
        assert vouched(operation, row, NOW, None) == confirmed


def changed(operation: str, **given: Any) -> Mapping[str, OperationRow]:
    return {**LOCAL, operation: replace(LOCAL[operation], **given)}


@every(
    ("terminal", "table"),
    [
        *[(TERMINAL, changed(operation, path="/other")) for operation in LOCAL],
        (TERMINAL, changed("abort", method="POST")),
        (TERMINAL, changed("search", pointer="/data")),
        (TERMINAL, changed("charge", abortable=False)),
        (replace(TERMINAL, headers={}), LOCAL),
        (replace(TERMINAL, headers={"X-Other": HeaderValue(value="one")}), LOCAL),
        (replace(TERMINAL, scheme="http"), LOCAL),
        (replace(TERMINAL, access_mode="cloud", base_url="https://cloud.example"), LOCAL),
        (TERMINAL, changed("print", document_member="other")),
        (TERMINAL, changed("charge", errors_in_2xx=True)),
        (TERMINAL, EDITIONS["2026"]["local"]),
        (replace(TERMINAL, auth="hmac"), LOCAL),
        (replace(TERMINAL, amount_unit="whole"), LOCAL),
        (replace(TERMINAL, answer_amount_unit="whole"), LOCAL),
        (replace(TERMINAL, webhook_signature="wh-secret-body-hex"), LOCAL),
    ],
)
def test_each_setting_that_the_proof_depends_on_changes_the_profile_version(
    terminal: TerminalConfig, table: Mapping[str, OperationRow]
) -> None:
    assert profile_version(terminal, table) != NOW


def test_the_settings_of_a_signature_scheme_count_only_while_in_use() -> None:
    other = replace(TERMINAL.hash_encrypt, key_separator="_")
    signing = replace(TERMINAL, auth="hash-encrypt")
    assert profile_version(replace(TERMINAL, hash_encrypt=other), LOCAL) == NOW
    assert profile_version(replace(signing, hash_encrypt=other), LOCAL) != profile_version(signing, LOCAL)


@every(
    "terminal",
    [
        replace(TERMINAL, headers={"x-key": HeaderValue(value="another secret")}),
        replace(TERMINAL, base_url="https://192.0.2.7:6869"),
        replace(TERMINAL, fingerprint_sha256="00" * 32, ca_file=Path("/ca.pem"), server_name="terminal"),
        replace(TERMINAL, connect_timeout_seconds=1, reply_timeout_seconds=2),
        replace(TERMINAL, business_code=HeaderValue(file=Path("/code")), answer_amount_unit="main"),
        replace(TERMINAL, webhook_secret=HeaderValue(file=Path("/secret"))),
    ],
)
def test_neither_address_nor_secret_nor_trust_changes_the_profile_version(terminal: TerminalConfig) -> None:
    assert profile_version(terminal, LOCAL) == NOW


def test_confirming_a_row_does_not_change_the_profile_version() -> None:
    assert profile_version(TERMINAL, changed("abort", confirmed=True)) == NOW


def test_in_the_cloud_the_profile_version_includes_the_service() -> None:
    one = replace(TERMINAL, access_mode="cloud", base_url="https://one.example")
    assert profile_version(one, CLOUD) != profile_version(replace(one, base_url="https://two.example"), CLOUD)
