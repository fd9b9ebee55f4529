"""Important settings that a library, an interpreter or a build may change are explicit. Each setting has a row."""

import asyncio
import json
import os
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from posd.base import tls_contexts
from posd.client.connection import Connection
from posd.storage.connection import connect_reader, connect_writer, open_file
from posd.terminals import trust
from posd.terminals.client import HEADERS
from tests.rig.certificates import OLD_STYLE, Leaf, recording

#: Context -> (flags of verification, mode, whether the name is verified).
CONTEXTS: Mapping[str, tuple[Callable[[], ssl.SSLContext], int, ssl.VerifyMode, bool]] = {
    "client": (lambda: tls_contexts.client(system=True), 0x88000, ssl.CERT_REQUIRED, True),
    "strict client": (tls_contexts.strict_client, 0x8020, ssl.CERT_REQUIRED, True),
    "unverified client": (tls_contexts.unverified_client, 0x88000, ssl.CERT_NONE, False),
    "server": (tls_contexts.server, 0x88000, ssl.CERT_NONE, False),
}

#: Key types and key agreement, by the name of a TLS 1.2 suite.
SUITES = {
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "AES128-GCM-SHA256",
    "AES128-SHA256",
    "AES128-SHA",
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_each_tls_context_has_explicit_settings(name: str) -> None:
    make, flags, mode, named = CONTEXTS[name]
    context = make()
    assert (context.verify_flags, context.verify_mode, context.check_hostname) == (flags, mode, named)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.maximum_version == ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert context.security_level == 2
    assert tls_contexts.OPTIONS & context.options == tls_contexts.OPTIONS
    offered = {suite["name"] for suite in context.get_ciphers()}
    assert offered >= SUITES
    assert not [suite for suite in offered if any(weak in suite for weak in ("NULL", "RC4", "DES", "PSK", "MD5"))]


def test_no_other_code_makes_a_tls_context() -> None:
    """Other code that makes a TLS context would use a default of the interpreter. The client and the simulator are
    exceptions, because they import nothing of posd.
    """
    home = Path(tls_contexts.__file__).parents[1]
    made = {
        str(path.relative_to(home))
        for path in home.rglob("*.py")
        if "SSLContext(" in (text := path.read_text()) or "create_default_context" in text
    }
    assert {name for name in made if not name.startswith(("simulator/", "client/"))} == {"base/tls_contexts.py"}


async def handshake(ca: Path, leaf: Leaf) -> None:
    async with recording(leaf.context()) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust.context(ca))
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("name", OLD_STYLE)
async def test_a_private_ca_is_trusted_by_every_python_or_none(tmp_path: Path, name: str) -> None:
    await handshake(*OLD_STYLE[name].write(tmp_path, "127.0.0.1"))


async def test_an_intermediate_ca_alone_is_trusted_if_it_is_configured(tmp_path: Path) -> None:
    below = trustme.CA().create_child_ca()
    below.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = below.issue_cert("127.0.0.1")
    leaf = Leaf(tmp_path / "leaf.crt", tmp_path / "leaf.key")
    leaf.certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    leaf.private_key.write_bytes(issued.private_key_pem.bytes())
    await handshake(tmp_path / "ca.pem", leaf)


PRAGMAS: Mapping[str, object] = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "secure_delete": 1,
    "busy_timeout": 2000,
    "wal_autocheckpoint": 4000,
    "journal_size_limit": 8 * 1024 * 1024,
    "trusted_schema": 0,
    "mmap_size": 0,
    "cache_size": -2000,
    "locking_mode": "normal",
}
READER_PRAGMAS: Mapping[str, object] = {"query_only": 1, "busy_timeout": 2000, "mmap_size": 0, "cache_size": -256}


@pytest.mark.parametrize(
    ("connect", "pragmas"), [(connect_writer, PRAGMAS), (connect_reader, READER_PRAGMAS)], ids=["writer", "reader"]
)
def test_each_pragma_is_explicit(
    tmp_path: Path, connect: Callable[[Path], sqlite3.Connection], pragmas: Mapping[str, object]
) -> None:
    connect_writer(tmp_path / "file.db").close()
    with closing(connect(tmp_path / "file.db")) as db:
        assert {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas} == pragmas


def test_the_module_sqlite3_begins_no_transaction(tmp_path: Path) -> None:
    with closing(open_file(tmp_path / "file.db")) as db:
        db.execute("CREATE TABLE rows (value)")
        db.execute("INSERT INTO rows VALUES (1)")
        assert (db.in_transaction, db.isolation_level) == (False, None)


def test_a_terminal_is_asked_for_uncompressed_replies() -> None:
    assert HEADERS["accept-encoding"] == "identity"


def test_the_client_follows_no_redirect(tmp_path: Path) -> None:
    with Connection(tmp_path / "till.sock") as till:
        assert (till._http.follow_redirects, till._http.trust_env) == (False, False)


#: Text -> whether JSON readers accept the text.
LIMITS_OF_JSON: Mapping[str, bool] = {
    "[" * 128 + "]" * 128: True,
    "[" * 129 + "]" * 129: False,
    "1" * 4300: True,
    "1" * 4301: False,
    "1." + "1" * 5000: True,
    "NaN": False,
    '"\\ud800"': False,
    '{"a": 1, "a": 2}': True,
}


@pytest.fixture(scope="module", params=["640", "0"])
def read_under(request: pytest.FixtureRequest) -> Mapping[str, bool]:
    """Return the accepted numbers under another limit of digits in the environment."""
    program = """
import json, sys
from posd.base import json_types
def is_read(text):
    try:
        json_types.decode(text.encode())
    except ValueError:
        return False
    return True
print(json.dumps({text: is_read(text) for text in json.load(sys.stdin)}))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(list(LIMITS_OF_JSON)),
        env=os.environ | {"PYTHONINTMAXSTRDIGITS": request.param},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(ran.stdout))


@pytest.mark.parametrize("text", LIMITS_OF_JSON, ids=lambda text: text[:12])
def test_each_limit_of_json_is_explicit(read_under: Mapping[str, bool], text: str) -> None:
    assert read_under[text] == LIMITS_OF_JSON[text]
