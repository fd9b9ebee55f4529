"""Calls on the database as a whole: an online backup, and the word of a person who has looked at a restore."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response

from posd.api.backup_request import Sent, invalid, read_backup
from posd.api.operator_documents import RestoresSeen
from posd.base.problems import Problem
from posd.base.times import iso
from posd.calls.app import json_response
from posd.calls.context import Context
from posd.payments.decision_requests import read_decision
from posd.records.request import MalformedJson
from posd.storage import backup, marks, rotation
from posd.storage.backup import BadTarget, Stopped
from posd.storage.batch import Unit
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.marks import Restored
from posd.storage.rotation import Rotated
from posd.storage.store import Store

log = structlog.get_logger("posd.backup")


class BackupCalls:
    """Handlers of /v1/backup and /v1/restore/seen."""

    def __init__(self, context: Context, store: Store, database: Path, keys: Sequence[bytes]) -> None:
        self._context = context
        self._store = store
        self._database = database
        self._keys = tuple(keys)
        self._one_at_a_time = asyncio.Lock()
        self._stopping = False

    def stop(self) -> None:
        """End a backup that is being made; nothing of it is left behind."""
        self._stopping = True

    async def back_up(self, request: Request) -> Response:
        """`POST /backup`: copy the database to `path`, or `into` a directory of which the newest are kept, or into the
        answer (`send`); payments go on meanwhile.
        """
        asked = read_backup(request.state.body)
        now = self._context.now()
        stopping = lambda: self._stopping  # noqa: E731
        work: Callable[[], Any]
        if asked.send:
            work = partial(rotation.write_unnamed, self._database, self._keys, iso(now), stopping)
        elif asked.into is not None:
            work = partial(rotation.write, self._database, asked.into, asked.keep, self._keys, now, stopping)
        else:
            assert asked.path is not None  # noqa: S101 - one of the three is asked for
            work = partial(backup.write, self._database, asked.path, self._keys, iso(now), stopping)
        async with self._one_at_a_time:
            done = await self._do(work, asked.field)
        if isinstance(done, tuple):
            written, descriptor = done
            log.info("store.backup", database="who asked", count=written.transactions)
            return Sent(descriptor, written.bytes)
        log.info("store.backup", database=done.path, count=done.transactions)
        if isinstance(done, Rotated) and done.unusable:
            words = f"these beside it cannot be used, and are not counted: {', '.join(done.unusable)}"
            log.warning("store.backups_unusable", directory=str(asked.into), detail=words)
        return json_response(done)

    async def _do(self, work: Callable[[], Any], field: str) -> Any:
        try:
            return await asyncio.to_thread(work)
        except BadTarget as error:
            raise invalid(f"/{field} {error}", [{"path": f"/{field}", "message": str(error)}]) from error
        except (StorageUnavailable, OSError) as error:
            log.error("store.backup_failed", error=str(error))  # noqa: TRY400 - the message is the whole story
            raise Problem("storage_unavailable", f"no backup was made: {error}") from error
        except Stopped as error:
            raise Problem("draining", "posd is stopping; no backup was made. Ask again in a moment") from error

    async def confirm_restore(self, request: Request) -> Response:
        """`POST /restore/seen`: a person has done what the restore asked for; health is ok again."""
        try:
            # The body is the one of a release: who, and why.
            decision, faults = read_decision("release", request.state.body, request.state.uid)
        except MalformedJson as error:
            raise Problem("malformed_json", f"the body is not JSON ({error}); nothing was changed") from error
        if faults:
            what = "; ".join(f"{fault.path or 'the body'} {fault.message}" for fault in faults)
            raise invalid(what, [{"path": fault.path, "message": fault.message} for fault in faults])
        detail = {"operator": decision.operator, "note": decision.note, "uid": decision.uid}
        try:
            restores = await self._store.write(partial(_see, at=iso(self._context.now()), detail=detail))
        except (StorageUnavailable, CommitUncertain) as error:
            raise Problem("storage_unavailable", f"cannot do it now: {error}; check the disk, and try again") from error
        log.info("store.restore_seen", uid=decision.uid, count=len(restores))
        return json_response(RestoresSeen(restores))


def _see(unit: Unit, at: str, detail: dict[str, Any]) -> list[Restored]:
    restores = marks.unseen_restores(unit.db)
    if not restores:
        raise Problem("not_found", "there is no restore that nobody has looked at; nothing is to be confirmed")
    marks.add(unit.db, at, marks.SEEN, detail)
    return restores


async def tell_restores(store: Store) -> None:
    """Log, at the daemon's start, what a restore left to be looked at. Raise StorageUnavailable."""
    for item in await store.read(marks.unseen_restores):
        log.warning("store.restored", detail=item.words)
