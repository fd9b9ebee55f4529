"""The served certificate and the certificate on disk, without a daemon."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from posd.api import certificate
from posd.api.certificate import CertificatePair, ServedCertificate
from posd.api.documents import Check
from posd.base.problems import RemedyStep
from posd.tls import issue
from posd.tls.certificate import called_as
from posd.tls.files import ServingContext, TlsFiles, describe
from tests.rig.daemon import toml
from tests.rig.waits import until

#: Interval at which these tests check the files, in seconds.
OFTEN = 0.02


def now() -> datetime:
    return datetime.now(UTC)


def own(home: Path) -> TlsFiles:
    return issue.init(home / "tls", names=["localhost"], addresses=["127.0.0.1"])


def pair(made: TlsFiles, renewable: Path | None = None) -> CertificatePair:
    return CertificatePair(made.certificate, made.private_key, renewable)


class Changes:
    """Calls that a listener received. `until` waits for a number of calls."""

    def __init__(self) -> None:
        self.served: list[ServingContext] = []
        self._news = asyncio.Event()

    def __call__(self, served: ServingContext) -> None:
        self.served.append(served)
        self._news.set()

    async def until(self, count: int) -> ServingContext:
        async with asyncio.timeout(60):
            while len(self.served) < count:
                self._news.clear()
                await self._news.wait()
        return self.served[count - 1]


@asynccontextmanager
async def looking(served: ServedCertificate) -> AsyncIterator[Changes]:
    changes = Changes()
    served.listen(changes)
    task = asyncio.create_task(served.run())
    try:
        yield changes
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_new_files_are_served_without_a_signal(tmp_path: Path) -> None:
    made = own(tmp_path)
    served = await ServedCertificate.open(pair(made), now, OFTEN)
    first = served.served
    async with looking(served) as changes:
        for count in (1, 2):
            issue.renew(made.certificate.parent)
            new = await changes.until(count)
            assert new.info.fingerprint_sha256 == describe(made.certificate).fingerprint_sha256
            assert new.context is not first.context
        assert served.served is new


async def test_a_new_certificate_is_served_once_its_key_matches(tmp_path: Path) -> None:
    """The shop's own tool replaces one file after the other, with any pause between the files."""
    made, other = own(tmp_path), own(tmp_path / "other")
    served = await ServedCertificate.open(pair(made), now, OFTEN)
    with capture_logs() as lines:
        async with looking(served) as changes:
            other.certificate.replace(made.certificate)
            await until(lambda: served.trouble)
            words = f"the certificate on disk is not served: {served.trouble}"
            step = RemedyStep("put a certificate and its key in place", "posd tls status")
            assert served.check() == Check.of("degraded", words, step, reason="not_served")
            assert changes.served == []
            other.private_key.replace(made.private_key)
            assert (await changes.until(1)).info == describe(made.certificate)
    assert served.check().status == "ok"
    refused = [line for line in lines if line["event"] == "certificate.refused"]
    assert len(refused) == 1  # posd logs one line for any number of checks
    assert "does not belong to the certificate" in refused[0]["error"]


async def test_a_corrected_fault_is_no_longer_reported(tmp_path: Path) -> None:
    made = own(tmp_path)
    served = await ServedCertificate.open(pair(made), now, OFTEN)
    async with looking(served):
        made.certificate.rename(tmp_path / "aside")
        await until(lambda: served.trouble)
        (tmp_path / "aside").rename(made.certificate)
        await until(lambda: served.trouble is None)
    assert served.check().status == "ok"


@pytest.mark.parametrize(
    ("days", "state", "words"),
    [
        (0, "ok", "valid for 395 more days"),
        (364, "ok", "valid for 31 more days"),
        (367, "degraded", "ends in 28 days"),
        (395.5, "degraded", "ends in 0 days"),
        (397, "failing", "has expired"),
    ],
)
@pytest.mark.parametrize("renewable", [True, False], ids=["own", "the shop's"])
async def test_posd_starts_with_an_expired_certificate_and_the_health_check_says_so(
    tmp_path: Path, days: float, state: str, words: str, renewable: bool
) -> None:
    made = own(tmp_path)
    config = tmp_path / "config.toml" if renewable else None
    served = await ServedCertificate.open(pair(made, config), lambda: now() + timedelta(days=days))
    found = served.check()
    detail = f"{found.detail}; {found.todo}"
    assert (found.status, words in detail) == (state, True), detail
    if state != "ok":
        assert ("posd tls renew" if renewable else "a new pair of the shop's own PKI") in detail


async def test_a_refused_certificate_is_reported_with_the_end_of_the_served_certificate(tmp_path: Path) -> None:
    made, other = own(tmp_path), own(tmp_path / "other")
    served = await ServedCertificate.open(pair(made), lambda: now() + timedelta(days=380), OFTEN)
    other.certificate.replace(made.certificate)
    async with looking(served):
        await until(lambda: served.trouble)
        found = served.check()
    detail = f"{found.detail}; {found.todo}"
    assert (found.status, "ends in 15 days" in detail, "does not belong to" in detail) == ("degraded", True, True)


async def test_the_end_of_the_certificate_is_logged_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]
    monkeypatch.setattr(certificate, "monotonic", lambda: passed[0])
    made = own(tmp_path)
    looks = 0

    def counted() -> datetime:
        nonlocal looks
        looks += 1
        return now() + timedelta(days=380)

    served = await ServedCertificate.open(pair(made), counted, OFTEN)

    async def looked(times: int) -> None:
        wanted = looks + times
        await until(lambda: looks >= wanted)

    with capture_logs() as lines:
        async with looking(served):
            await looked(5)
            assert [line["event"] for line in lines] == ["certificate.ends"]
            passed[0] = 86_400.0
            await looked(5)
    assert [line["event"] for line in lines] == ["certificate.ends"] * 2
    assert "ends in 15 days; put a new pair of the shop's own PKI into" in lines[0]["detail"]


@pytest.mark.slow
async def test_a_failed_renewal_is_logged_and_repeated_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]
    monkeypatch.setattr(certificate, "monotonic", lambda: passed[0])
    config = tmp_path / "config.toml"
    config.write_text(toml(tmp_path, "").replace("[webhooks]\n", '[webhooks]\nadvertise_host = "pos.example"\n'))
    made = own(tmp_path / "state")
    made.ca_key.unlink()
    wanted = partial(called_as, "127.0.0.1", "pos.example")
    served = await ServedCertificate.open(
        CertificatePair(made.certificate, made.private_key, config, wanted), now, OFTEN
    )

    with capture_logs() as lines:

        async def told(times: int) -> None:
            await until(lambda: sum(line["event"] == "certificate.not_renewed" for line in lines) >= times)

        async with looking(served):
            await told(1)
            passed[0] = certificate.REMINDER_SECONDS
            await told(2)
    failed = [line for line in lines if line["event"] == "certificate.not_renewed"]
    assert len(failed) == 2
    assert "ca.key: does not exist, but the other file of the pair does" in failed[0]["error"]
    assert failed[0]["detail"] == "it is not for pos.example"
