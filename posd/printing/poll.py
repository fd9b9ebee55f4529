"""Poller of print jobs. Polling is needed because a print webhook arrives once or never.

The poller receives every change of a job after its COMMIT, and has a plan for each open job
(`posd.printing.schedule`). One task sleeps until the next poll is due, or until a plan changes. A terminal is polled
for one job at a time. While a terminal is unreachable, only one of its jobs is polled, after a growing pause.

Source: terminal API, Printing.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.times import parse_iso
from posd.config.schema import PrintConfig
from posd.printing import rows, schedule
from posd.printing.entries import Polled, Stuck
from posd.printing.model import PrintAttentionCode, PrintJob
from posd.printing.schedule import NEVER, PollPlan
from posd.printing.start import PrintTurns
from posd.printing.wire import Answer, NoAnswer, PollAnswered, read_poll
from posd.records.model import Phase, tag
from posd.records.service import RecordService, ServiceParts
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.terminals.attempt import NotSent

log = structlog.get_logger("posd.print_spooler")


class _PollQueue(msgspec.Struct, eq=False):
    """Open jobs of one terminal, and the state of their polls."""

    jobs: set[str] = msgspec.field(default_factory=set)
    failures: int = 0  # failed polls since the terminal was last reached
    away_until: float = -NEVER  # end of the pause after a failed poll, in which none of the jobs is polled
    asking: asyncio.Task[None] | None = None


class PrintPoller(RecordService):
    """Poller of open print jobs. Call `adopt` with the open jobs, run `run` as a task, and call `close`."""

    def __init__(self, parts: ServiceParts, turns: PrintTurns, limits: PrintConfig) -> None:
        super().__init__(parts)
        self._turns = turns
        self._limits = limits
        self._chance = parts.chance
        self._seconds = parts.seconds
        self._plans: dict[str, PollPlan] = {}
        self._terminals: dict[str, str] = {}  # job -> terminal; also terminals that are not in the fleet at present
        self._lines: dict[str, _PollQueue] = {}
        self._telling: dict[asyncio.Task[None], None] = {}
        self._wake = asyncio.Event()
        self._closing = False
        #: Number of polls since the start of the process, by whether the terminal replied.
        self.polls = Counter({"answer": 0, "no_answer": 0})

    def adopt(self, taken_over: Sequence[PrintJob]) -> None:
        """Plan a poll now for each job that an earlier daemon left open."""
        now, wall = self._seconds(), self._now()
        for job in taken_over:
            age = (wall - parse_iso(job.accepted_at or job.created_at)).total_seconds()
            told = job.attention_of(PrintAttentionCode.PRINT_STUCK) is not None
            active = job.phase is Phase.ACTIVE
            self._keep(job.print_job_id, job.terminal, schedule.adopt(active, age, told, self._limits, now))

    def returned(self, terminal: str) -> None:
        """End the pause of a terminal, because it is reachable again, or has another address."""
        line = self._lines.get(terminal)
        if line is not None and line.failures:
            line.failures, line.away_until = 0, -NEVER
            self._wake.set()

    def unusable(self, print_job_id: str) -> None:
        """Plan a poll of a job soon. The terminal does not repeat the job's unusable webhook."""
        if (plan := self._plans.get(print_job_id)) is not None:
            self._keep(print_job_id, self._terminals.get(print_job_id), schedule.soon(plan, self._seconds()))

    async def ask(self, job: PrintJob) -> Answer:
        """Poll a job now, even an ended one, and record changes. Return the reply.

        Raise StorageUnavailable or CommitUncertain if the result cannot be recorded.
        """
        if job.terminal is None:
            return NoAnswer("its terminal is not known")
        if job.phase is Phase.STARTING:
            return NoAnswer("it is being sent; ask again afterwards")
        async with self._turns.ask(job.terminal):
            return (await self._call(job, job.terminal))[0]

    async def run(self) -> None:
        """Run due polls, until cancelled."""
        while True:
            self._wake.clear()
            now = self._seconds()
            soonest = min((self._ask_next(terminal, now) for terminal in self._lines), default=NEVER)
            soonest = min(soonest, self._tell_stuck(now))
            with suppress(TimeoutError):
                # Python 3.11's `wait_for` loses a cancellation that arrives together with the event.
                async with asyncio.timeout(None if soonest == NEVER else soonest - now):
                    await self._wake.wait()

    async def close(self) -> None:
        """Stop polling. Cancel running polls. The next daemon repeats them."""
        self._closing = True
        tasks = [line.asking for line in self._lines.values() if line.asking is not None] + list(self._telling)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def changed(self, changes: Sequence[RecordedChange]) -> None:
        """Process changes after their COMMIT, on the event loop."""
        for change in changes:
            self._plan_after(change)

    def _plan_after(self, change: RecordedChange) -> None:
        if change.phase == Phase.FINAL:
            self._plans.pop(change.id, None)
            if (terminal := self._terminals.pop(change.id, None)) is not None:
                self._lines[terminal].jobs.discard(change.id)
        elif change.phase != Phase.STARTING:
            now, active = self._seconds(), change.phase == Phase.ACTIVE
            plan = self._plans.get(change.id)
            if plan is None:
                self._keep(change.id, change.terminal, schedule.begin(active, self._limits, now))
            elif active and not plan.accepted:
                self._keep(change.id, change.terminal, schedule.accepted(plan, self._limits, now))

    def _keep(self, identity: str, terminal: str | None, plan: PollPlan) -> None:
        """Store a new plan of a job, and wake the task."""
        self._plans[identity] = plan
        if terminal is not None:
            self._terminals[identity] = terminal
            self._lines.setdefault(terminal, _PollQueue()).jobs.add(identity)
        self._wake.set()

    def _ask_next(self, terminal: str, now: float) -> float:
        """Poll the next job of a terminal if it is due. Otherwise return the time at which it is due."""
        line = self._lines[terminal]
        if line.asking is not None or self._closing:
            return NEVER
        at, identity = min(((self._plans[job].poll_at, job) for job in line.jobs), default=(NEVER, ""))
        if (at := max(at, line.away_until)) > now:
            return at
        due = self._plans[identity].poll_at
        self._plans[identity] = schedule.asking(self._plans[identity], now)
        line.asking = asyncio.create_task(self._ask(identity, terminal, line, due), name=f"print-poll-{identity}")
        return NEVER

    async def _ask(self, identity: str, terminal: str, line: _PollQueue, due: float) -> None:
        reached: bool | None = None
        try:
            async with self._turns.ask(terminal):
                reached = await self._poll(identity, terminal)
        except (StorageUnavailable, CommitUncertain) as error:
            log.warning("print.not_recorded", print_job=identity, error=str(error))
        except Exception:
            log.exception("posd.internal_error", error_id=secrets.token_hex(8), print_job=identity)
        finally:
            line.asking = None
            self._wake.set()
        self._plan(identity, terminal, line, due, reached)

    def _plan(self, identity: str, terminal: str, line: _PollQueue, due: float, reached: bool | None) -> None:
        """Plan the next poll after the result of a poll. `reached`: None if the terminal was not called."""
        now, jitter = self._seconds(), self._chance()
        if reached is False:
            line.away_until = schedule.not_reached(line.failures, self._limits, now, jitter)
            line.failures += 1
        elif reached:
            line.failures, line.away_until = 0, -NEVER
        current = self._plans.get(identity)
        if current is None or current.poll_at != NEVER:
            return  # the job has ended, or was planned again after a change
        if reached is False:
            self._keep(identity, terminal, schedule.asked_in_vain(current, due))
        else:
            self._keep(identity, terminal, schedule.answered(current, self._limits, now, jitter))

    async def _poll(self, identity: str, terminal: str) -> bool | None:
        """Poll a job, and record the reply. Return whether the terminal was reached, or None if there was no poll."""
        job = await self._store.look_up(partial(rows.get, identity=identity))
        if job is None or job.phase is Phase.FINAL:
            return None
        return (await self._call(job, terminal))[1]

    async def _call(self, job: PrintJob, terminal: str) -> tuple[Answer, bool]:
        """Poll a job, and record the reply. Return the reply, and whether the terminal was reached."""
        if (known := self._fleet.get(terminal)) is None:
            return NoAnswer("its terminal is not in the fleet"), False
        base_url = await known.choose()
        if base_url is None:
            return NoAnswer(f"no address of terminal {terminal} is known"), False
        row = known.rows["print-job"]
        body = b"{}" if row.method == "POST" else None
        request = known.request("print-job", base_url, body, print_job_id=job.asked_as)
        crash_point("print_poll.before_send")
        attempt = await known.call(request)
        crash_point("print_poll.replied")
        reached = not isinstance(attempt, NotSent)
        answer = read_poll(attempt, job)
        if isinstance(answer, PollAnswered):
            entry = Polled(answer)
            await self._store.write(partial(_record, identity=job.print_job_id, entry=entry, now=self._now()))
            crash_point("print_poll.recorded")
        result = tag(answer)
        self.polls[result] += 1
        log.info(
            "print.poll",
            print_job=job.print_job_id,
            terminal=terminal,
            status=answer.report.status if isinstance(answer, PollAnswered) else None,
            result=result,
            reason=answer.reason if isinstance(answer, NoAnswer) else None,
        )
        return answer, reached

    def _tell_stuck(self, now: float) -> float:
        """Report the jobs that are stuck at the time `now`. Return the time at which the next job will be stuck."""
        soonest = NEVER
        for identity, plan in list(self._plans.items()):
            at = schedule.stuck_due(plan)
            if at is not None and at <= now:
                self._plans[identity] = schedule.told(plan)
                task = asyncio.create_task(self._note_stuck(identity), name=f"print-stuck-{identity}")
                self._telling[task] = None
                task.add_done_callback(self._telling.pop)
            elif at is not None:
                soonest = min(soonest, at)
        return soonest

    async def _note_stuck(self, identity: str) -> None:
        try:
            stuck = Stuck(self._limits.stuck_seconds)
            await self._store.write(partial(_record, identity=identity, entry=stuck, now=self._now()))
        except (StorageUnavailable, CommitUncertain) as error:
            log.warning("print.not_recorded", print_job=identity, error=str(error))
            plan = self._plans.get(identity)
            if plan is not None:
                again = schedule.tell_later(plan, self._limits, self._seconds())
                self._keep(identity, self._terminals.get(identity), again)


def _record(unit: WriteTransaction, identity: str, entry: Polled | Stuck, now: datetime) -> None:
    """Apply an entry (runs inside the commit)."""
    rows.record(unit, rows.PRINT_JOB.require(unit.db, identity), entry, now)
