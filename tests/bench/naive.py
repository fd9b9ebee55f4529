"""A naive receiver, as a tutorial has it: Starlette, and SQLAlchemy's ORM on an SQLite file, with their own settings; a
session a request on a thread of the pool, one commit an event.

It checks no token, sees no repeated event, and has no limits. SQLite's settings (a journal that is deleted, five
seconds of waiting for a lock) are those of the driver.
"""

import argparse
import asyncio
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.bench.stock import serve_stock


class Base(DeclarativeBase):
    """The tables."""


class Transaction(Base):
    """A payment, as its newest event says."""

    __tablename__ = "transactions"

    id: Mapped[int] = mapped_column(primary_key=True)
    client_transaction_id: Mapped[str] = mapped_column(unique=True, index=True)
    status: Mapped[str]
    serial_number: Mapped[str]
    updated_at: Mapped[datetime]


class Event(Base):
    """One event of a terminal."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[str] = mapped_column(unique=True, index=True)
    client_transaction_id: Mapped[str] = mapped_column(index=True)
    status: Mapped[str]
    previous_status: Mapped[str | None]
    occurred_at: Mapped[datetime]
    payload: Mapped[str]


def store(sessions: sessionmaker[Session], document: dict[str, Any], text: str) -> None:
    """Store one event and what it says of the payment, in one commit."""
    occurred_at = datetime.fromisoformat(document["occurred_at"])
    with sessions() as session:
        known = select(Transaction).where(Transaction.client_transaction_id == document["client_transaction_id"])
        transaction = session.scalars(known).one_or_none()
        if transaction is None:
            transaction = Transaction(
                client_transaction_id=document["client_transaction_id"],
                serial_number=document["terminal"]["serial_number"],
            )
            session.add(transaction)
        transaction.status = document["status"]
        transaction.updated_at = occurred_at
        session.add(
            Event(
                event_id=document["event_id"],
                client_transaction_id=document["client_transaction_id"],
                status=document["status"],
                previous_status=document.get("previous_status"),
                occurred_at=occurred_at,
                payload=text,
            )
        )
        session.commit()


def receiver(database: Path) -> Starlette:
    """Return the app."""
    engine = create_engine(f"sqlite:///{database}")
    Base.metadata.create_all(engine)
    sessions = sessionmaker(engine)

    async def webhook(request: Request) -> JSONResponse:
        document = await request.json()
        await run_in_threadpool(store, sessions, document, (await request.body()).decode())
        return JSONResponse({"status": "ok"})

    return Starlette(routes=[Route("/webhooks/{rest:path}", webhook, methods=["POST"])])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--database", type=Path, required=True)
    given = parser.parse_args()
    logging.disable()  # of an event that it cannot store it says 500, and the load counts that
    asyncio.run(serve_stock(receiver(given.database), given.certificate, given.key))
