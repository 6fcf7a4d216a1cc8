"""FastAPI with SQLite: takes lines of JSON, checks their types and has them on disk before it
answers. No search for duplicates, no redaction, no keys, no Parquet."""

import socket
import sqlite3
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from pydantic import BaseModel
from pydantic_core import to_json

_SCHEMA = """
    create table events (
        session_id text, seq integer, ts text, type text, event_id text, source text,
        source_key text, checkpoint text, user text, project text, payload text
    )
"""
_INSERT = f"insert into events values ({', '.join('?' * 11)})"


class EventLine(BaseModel):
    session_id: str
    ts: str | int
    type: str
    payload: dict[str, Any]
    seq: int | None = None
    event_id: str | None = None
    source: str | None = None
    source_key: str | None = None
    checkpoint: str | None = None
    user: str | None = None
    project: str | None = None

    def row(self) -> tuple[object, ...]:
        payload = to_json(self.payload).decode()
        return (
            self.session_id, self.seq, str(self.ts), self.type, self.event_id, self.source,
            self.source_key, self.checkpoint, self.user, self.project, payload,
        )  # fmt: skip


def _application(path: str) -> FastAPI:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = full")
    database.execute(_SCHEMA)
    application = FastAPI()

    async def take(request: Request) -> dict[str, int]:
        lines = (await request.body()).splitlines()
        rows = [EventLine.model_validate_json(line).row() for line in lines]
        database.execute("begin")
        database.executemany(_INSERT, rows)
        database.execute("commit")
        return {"accepted": len(rows)}

    async def stored() -> dict[str, int]:
        [count] = database.execute("select count(*) from events").fetchone()
        return {"stored": count}

    application.add_api_route("/v1/events", take, methods=["POST"])
    application.add_api_route("/stored", stored, methods=["GET"])
    return application


def _serve(path: str) -> None:
    """Its port is bound before it listens: who reads it here may connect at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(_application(path), log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    _serve(sys.argv[1])
