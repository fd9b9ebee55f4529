"""docs/guides/streams.md. The example runs unchanged. The numbers and names are the same as in the code."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from posd.api.feed import FeedPage, Notice
from posd.calls import streams
from posd.calls.parameters import DEFAULT_LIMIT, MAX_LIMIT
from posd.httpd import connection
from posd.httpd.connection import WRITE_AHEAD_BYTES
from posd.records import pages
from tests.rig.shop import Shop, open_shop

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "streams.md").read_text()


def outline(output: str) -> list[str]:
    """Return the lines of a stream, without values that differ between runs."""
    return [line if line.startswith(("event:", "retry:")) else line.partition(":")[0] for line in output.splitlines()]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_the_example_prints_the_output_of_the_page(home: Path) -> None:
    (command,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    (output,) = re.findall(r"```\n(retry.*?)```", PAGE, re.DOTALL)
    async with open_shop(home) as shop:
        said = await _run(shop, command)
    assert outline(said.strip()) == outline(output.strip()), said


async def _run(shop: Shop, command: str) -> str:
    payment = await shop.started()
    await payment.approve()
    process = await asyncio.create_subprocess_shell(
        command,
        env={"SOCKET": str(shop.daemon.till_socket), "id": payment.identity, "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        stdout, _ = await process.communicate()
    assert process.returncode == 0
    return stdout.decode()


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    for words in (
        f"every {streams.HEARTBEAT_SECONDS:g} s",
        f"`retry: {streams.RETRY_MILLISECONDS}`",
        f"at most {WRITE_AHEAD_BYTES // 1024} KiB, a batch of {streams.BATCH_BYTES // 1024} KiB",
        f"**nothing for {connection.TAKE_SECONDS:g} s**",
        f"nothing for another {connection.LINGER_SECONDS:g} s",
        f"`limit` is {DEFAULT_LIMIT} unless given, {MAX_LIMIT} at most",
        f"`?after={pages.START}`",
    ):
        assert words in PAGE, words


def test_the_names_of_the_page_are_those_of_the_code() -> None:
    named = set(re.findall(r"^\| `([a-z_]+)` \| ", PAGE, re.MULTILINE))
    assert named >= streams.OWN_NAMES
    assert {"changes_removed", "place_unknown"} <= set(re.findall(r"`([a-z_]+)`", PAGE))
    for field in (*FeedPage.__struct_fields__, *Notice.__struct_fields__):
        assert f"`{field}`" in PAGE, field
