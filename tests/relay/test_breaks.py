"""Faults of server, network, posd and database while the relay sends. The rights of a lane are tested too."""

import asyncio
import base64
import json
import secrets
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from posd.config.schema import RelayConfig
from posd.relay.stream import StreamAway, connected, read_credentials
from tests.e2e.test_back_in_time import restored
from tests.e2e.test_backup import back_up
from tests.relay.lane import Lane, once_each, sent
from tests.relay.nats_server import NatsServer
from tests.relay.test_relay import paid
from tests.rig.commands import posd
from tests.rig.needs import needs
from tests.rig.shop import Shop

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs("nats-server")]


async def test_a_server_has_every_message_after_a_kill_and_a_restart(shop: Shop, tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        await server.make_stream()
        lane = Lane(shop.daemon, server)
        relay = await lane.start()
        await lane.until_complete()
        await server.stop(signal.SIGKILL)
        await paid(shop)
        await relay.log_line("relay.waiting")
        await server.start()
        found = await lane.until_complete()
        assert sent(found) == await lane.feed()
        assert await relay.stop() == 0


async def test_the_relay_continues_after_a_kill_and_a_restart_of_posd(own: Shop, tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        await server.make_stream()
        lane = Lane(own.daemon, server)
        await paid(own)
        relay = await lane.start()
        await lane.until_complete()
        *_, known = await lane.messages("state")
        await own.daemon.kill()
        await relay.log_line("relay.waiting")
        await server.until(
            lane.subject, lambda last: last["kind"] == "state" and "unreachable" in last["health"].values()
        )
        *_, told = await lane.messages()
        assert told["health"] == {"status": "unreachable"}
        assert [told[name] for name in ("last_seq", "place", "open")] == [
            known[name] for name in ("last_seq", "place", "open")
        ]
        assert told["as_of"] < told["at"], "the time up to which the lane is complete has not changed"
        await own.daemon.start()
        await paid(own)
        found = await lane.until_complete()
        assert sent(found) == await lane.feed()
        assert found[-1]["health"] == {"status": "ok"}
        told_away = [message for message in found if message.get("health") == {"status": "unreachable"}]
        assert len(told_away) == 1, "the relay reports the state once"
        assert await relay.stop() == 0


async def test_a_restored_backup_is_a_new_database_that_names_the_previous_database(own: Shop, tmp_path: Path) -> None:
    """The backup has unsent changes of the old feed. The relay sends these changes under the old database_id. The other
    changes are in the new feed.
    """
    async with NatsServer(tmp_path) as server:
        await server.make_stream()
        lane = Lane(own.daemon, server)
        first = await paid(own)
        await lane.once()
        second = await paid(own)
        await back_up(own.daemon, tmp_path / "backup.db")
        copied = (await lane.feed())[-1]["seq"]
        third = await paid(own)
        await own.daemon.kill()
        await restored(own.daemon, str(tmp_path / "backup.db"))
        await own.daemon.start()
        await lane.once()
        begin, again = await lane.messages("begin")
        messages = await lane.messages()
        assert again["previous"] == {"database_id": begin["database_id"], "last_seq": copied}
        of = {
            message["database_id"]: once_each(
                [item for item in messages if item["database_id"] == message["database_id"]]
            )
            for message in (begin, again)
        }
        assert [*of[begin["database_id"]], *of[again["database_id"]]] == await lane.feed()
        assert [change["seq"] for change in of[begin["database_id"]]] == list(range(1, copied + 1))
        ids = {change["id"] for change in of[begin["database_id"]]}
        assert {first.identity, second.identity} <= ids
        assert third.identity in {change["id"] for change in of[again["database_id"]]}
        assert not await lane.messages("lost")


async def test_changes_removed_before_they_were_sent_are_reported_as_lost(own: Shop, tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        await server.make_stream()
        lane = Lane(own.daemon, server)
        await paid(own)
        removed = (await lane.feed())[-1]["seq"]
        reply = await own.daemon.call("POST", "/prune", {"older_than_days": 0}, socket=own.daemon.admin_socket)
        assert reply.status == 200, reply.body
        await paid(own)
        relay = await lane.once()
        (lost,) = await lane.messages("lost")
        assert (lost["from_seq"], lost["to_seq"]) == (1, removed)
        assert sent(await lane.messages()) == await lane.feed()
        assert [line["count"] for line in relay.lines if line["event"] == "relay.lost"] == [removed]


async def test_a_run_that_is_too_large_for_the_server_is_sent_in_parts(shop: Shop, tmp_path: Path) -> None:
    async with NatsServer(tmp_path, "max_payload: 2KB\n") as server:
        await server.make_stream()
        lane = Lane(shop.daemon, server)
        await paid(shop)
        await lane.once()
        assert sent(await lane.messages()) == await lane.feed()
        assert len(await lane.messages("changes")) > 1


async def test_metadata_is_sent_only_if_it_is_configured(own: Shop, tmp_path: Path) -> None:
    async with NatsServer(tmp_path) as server:
        await server.make_stream()
        payment = await own.started(metadata={"ticket": 7})
        await payment.end()
        for settings, wanted in (("", None), ("metadata = true", {"ticket": 7})):
            (own.daemon.config_file.parent / "config.d").mkdir(exist_ok=True)
            (own.daemon.config_file.parent / "config.d" / "relay.toml").write_text(f"[relay]\n{settings}\n")
            assert own.daemon.process is not None
            lines = len(own.daemon.lines)
            own.daemon.process.send_signal(signal.SIGHUP)
            await own.daemon.log_line("config.loaded", after=lines)
            lane = Lane(own.daemon, server, settings)
            await lane.once()
            last = [change for change in sent(await lane.messages()) if change["id"] == payment.identity][-1]
            assert last["outcome"].get("metadata") == wanted


#: The user has exactly the permissions that a lane needs.
PERMISSIONS = """{ publish: { allow: ["posd.m1.%s", "$JS.API.DIRECT.GET.POSD.posd.m1.%s"] },
                   subscribe: { allow: ["_I.m1.%s.>"] } }"""


async def test_a_lane_with_the_documented_permissions_logs_in_over_tls(shop: Shop, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "server.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "server.key"))
    (tmp_path / "password").write_text("secret\n")
    tls = f'tls {{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key" }}\n'
    users = "{ user: hq, password: hq }, { user: a, password: secret, permissions: %s }" % (PERMISSIONS % (("a",) * 3))
    users = f"authorization {{ users: [ {users} ] }}\n"
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    options = {"user": "hq", "password": "hq", "tls": context}
    async with NatsServer(tmp_path, tls + users, scheme="tls", options=options) as server:
        await server.make_stream()
        login = f'user = "a"\npassword_file = "{tmp_path}/password"\nca_file = "{tmp_path}/ca.pem"'
        lane = Lane(shop.daemon, server, login, name="a")
        await lane.once()
        assert sent(await lane.messages()) == await lane.feed()

        other = await Lane(shop.daemon, server, login, name="b").start("--once")
        assert await other.ended() == 3
        assert "ermission" in other.lines[-1]["error"]
        assert await server.messages("posd.m1.b") == []

        stranger = await Lane(shop.daemon, server, login.replace('"a"', '"x"'), name="a").start("--once")
        assert await stranger.ended() == 3
        # the server's error and the disconnection can arrive in either order
        assert stranger.lines[-1]["event"] == "relay.away"
        untrusted = await Lane(shop.daemon, server, login.replace("ca_file", "#"), name="a").start("--once")
        assert await untrusted.ended() == 3
        assert "certificate" in untrusted.lines[-1]["error"]


async def test_a_server_without_tls_gets_no_password(tmp_path: Path) -> None:
    """A man in the middle could claim that TLS is not available."""
    heard = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version": "2.10.27", "auth_required": true, "max_payload": 1048576}\r\n')
        line = await reader.readline()
        if not heard.done():
            heard.set_result(line)
        writer.write(b"PONG\r\n")
        writer.close()

    (tmp_path / "password").write_text("secret\n")
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        config = RelayConfig(
            servers=(f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}",), lane="", stream="POSD",
            credentials_file=None, user="a", password_file=tmp_path / "password", certificate=None, private_key=None,
            ca_file=None, metrics_listen=None, batch=1, state_seconds=1, metadata=False,
        )  # fmt: skip
        with pytest.raises(StreamAway, match="offers no TLS"):
            async with connected(config, "posd.m1.a", "_I.m1.a"):
                pass
        assert await heard == b""


def nkey(kind: bytes, key: Ed25519PrivateKey) -> str:
    """Return a public key in the form of NATS: kind, key and CRC-16 (XMODEM) in base32."""
    return _checked(kind, key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def _checked(prefix: bytes, content: bytes) -> str:
    checksum = 0
    for byte in prefix + content:
        checksum ^= byte << 8
        for _ in range(8):
            checksum = ((checksum << 1) ^ (0x1021 if checksum & 0x8000 else 0)) & 0xFFFF
    return base64.b32encode(prefix + content + checksum.to_bytes(2, "little")).decode().rstrip("=")


def token(key: Ed25519PrivateKey, issuer: str, subject: str, kind: str, **claims: Any) -> str:
    """Sign a NATS JWT."""
    body = {"jti": secrets.token_hex(8), "iat": 1, "iss": issuer, "sub": subject, "name": kind}
    body["nats"] = {"type": kind, "version": 2} | claims
    parts = [json.dumps(part).encode() for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return (text + b"." + base64.urlsafe_b64encode(key.sign(text)).rstrip(b"=")).decode()


async def test_a_lane_logs_in_with_a_file_of_nats_credentials(shop: Shop, tmp_path: Path) -> None:
    """The test makes operator, account and user as `nsc` does."""
    operator, account, system, user = (Ed25519PrivateKey.generate() for _ in range(4))
    names = {key: nkey(kind, key) for key, kind in ((operator, b"\x70"), (account, b"\x00"), (system, b"\x00"))}
    unlimited = dict.fromkeys(("subs", "conn", "leaf", "imports", "exports", "data", "payload"), -1)
    storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    accounts = {
        names[account]: token(operator, names[operator], names[account], "account", limits=unlimited | storage),
        names[system]: token(operator, names[operator], names[system], "account", limits=unlimited),
    }
    free = {"subs": -1, "data": -1, "payload": -1}
    login = token(account, names[account], nkey(b"\xa0", user), "user", **free)
    seed = _checked(bytes([0x90 | (0xA0 >> 5), (0xA0 & 31) << 3]), user.private_bytes_raw())
    credentials = tmp_path / "lane.creds"
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{login}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    preload = "\n".join(f"{name}: {text}" for name, text in accounts.items())
    more = (
        f"operator: {token(operator, names[operator], names[operator], 'operator')}\nsystem_account: {names[system]}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"
    )
    jwt, sign = read_credentials(credentials)
    options = {"user_jwt_cb": jwt.encode, "signature_cb": sign}
    async with NatsServer(tmp_path, more, options=options) as server:
        await server.make_stream()
        lane = Lane(shop.daemon, server, f'credentials_file = "{credentials}"')
        await lane.once()
        assert sent(await lane.messages()) == await lane.feed()


BASE: dict[str, dict[str, Any]] = {"merchant": {"id": "m1"}, "relay": {"servers": ["nats://127.0.0.1:1"], "lane": "a"}}
UNUSABLE: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "no servers": ({"relay": {"servers": []}}, "relay.servers is empty"),
    "no merchant": ({"merchant": {"id": ""}}, "merchant.id is empty"),
    "a merchant that is invalid in a subject": ({"merchant": {"id": "m.1"}}, "merchant.id m.1 cannot be sent"),
    "an invalid lane": ({"relay": {"lane": "till 1"}}, "'till 1' is not a part of a subject"),
    "another scheme": ({"relay": {"servers": ["http://127.0.0.1:1"]}}, "tls:// or nats://"),
    "a missing file": ({"relay": {"credentials_file": "/nowhere"}}, "No such file or directory: '/nowhere'"),
    "a file without credentials": ({"relay": {"credentials_file": "config.toml"}}, "is not a file of NATS credentials"),
    "no PEM certificate": ({"relay": {"certificate": "config.toml", "private_key": "config.toml"}}, "cannot be used"),
    "a certificate without a key": ({"relay": {"certificate": "config.toml"}}, "goes together with private_key"),
    "a user without a password": ({"relay": {"user": "a"}}, "goes together with password_file"),
    "two logins": ({"relay": {"credentials_file": "a", "user": "a", "password_file": "b"}}, "second way to log in"),
}


@pytest.mark.parametrize(("changed", "words"), UNUSABLE.values(), ids=UNUSABLE)
async def test_a_faulty_setting_is_reported(changed: dict[str, dict[str, Any]], words: str, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    sections = {name: found | changed.get(name, {}) for name, found in BASE.items()}
    lines = [
        f"{key} = {json.dumps(value)}" if key else f"[{value}]"
        for name, section in sections.items()
        for key, value in [("", name), *section.items()]
    ]
    config.write_text("\n".join(lines))
    done = posd("relay", "--once", config=config)
    assert done.returncode == 2, done.stdout
    assert words in done.stderr


async def test_the_installed_command_reports_a_fault_of_the_configuration_too(tmp_path: Path) -> None:
    """The command loads the libraries for messages only before it writes a message."""
    config = tmp_path / "config.toml"
    config.write_text(
        '[merchant]\nid = "m1"\n[relay]\nservers = ["nats://[::1]:1"]\nlane = "a"\ncredentials_file = "/no"\n'
    )
    command = (sys.executable, "-m", "posd", "--config", str(config), "relay", "--once")
    done = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await done.communicate()
    assert (done.returncode, b"Traceback" in said, b"'/no'" in said) == (2, False, True), said
