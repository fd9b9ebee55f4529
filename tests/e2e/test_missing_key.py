"""A database without its callback key: posd says what is lost, and does not start with another key in silence."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import some
from tests.e2e.test_backup import approve, posd_command
from tests.support.shop import Shop
from tests.support.webhooks import key_file

COMMAND = "posd restore --new-callback-key --operator NAME"

TROUBLES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "damaged": lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()[2:]),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("trouble", some(TROUBLES, "missing", "damaged"))
async def test_posd_does_not_start_and_says_what_is_lost(own: Shop, trouble: str) -> None:
    daemon, key = own.daemon, key_file(own.daemon)
    waiting = await own.started()
    await daemon.kill()
    good = key.read_bytes()
    TROUBLES[trouble](key)
    for _ in range(2):
        code, said = await daemon.cannot_start()
        assert code == 1
        assert str(key) in said
        if trouble != "a directory":
            assert "callbacks of payments that are under way are refused" in said
            assert "posd restore BACKUP" in said
            assert COMMAND in said
    if key.is_dir():
        key.rmdir()
    key.write_bytes(good)
    await daemon.start()
    await approve(waiting)
    assert (await waiting.get())["outcome"]["result"] == "approved"


@pytest.mark.parametrize("trouble", some(("missing", "damaged"), "missing"))
async def test_a_new_key_is_made_on_purpose(own: Shop, trouble: str) -> None:
    daemon, key = own.daemon, key_file(own.daemon)
    code, _, said = await posd_command(daemon, "restore", "--new-callback-key", "--operator", "Ana", "--yes")
    assert (code, "stop it first" in said) == (1, True)
    waiting = await own.started()
    await daemon.kill()
    code, _, said = await posd_command(daemon, "restore", "--new-callback-key", "--operator", "Ana", "--yes")
    assert (code, "is a good callback key" in said) == (1, True)
    TROUBLES[trouble](key)
    code, shown, said = await posd_command(daemon, "restore", "--new-callback-key", "--operator", "Ana", "--yes")
    assert (code, "1 payment open" in shown, "are refused with a new key" in shown) == (0, True, True), said
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(list(key.parent.glob("callback.key.replaced-*"))) == (trouble == "damaged")
    await daemon.start()
    assert await waiting.event("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED") == 403
    later = await own.started()
    await approve(later)
    assert (await later.get())["outcome"]["result"] == "approved"
