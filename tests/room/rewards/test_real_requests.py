"""Requests in conversations of strangers, in the folder that PENSTOCK_SAMPLE_SESSIONS names: what a
person read in them before the judge did. The table holds digests of messages, and no text."""

import csv
import hashlib
import os
from collections import Counter
from pathlib import Path

import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock_jobs.rewards.bucket import as_bucket
from penstock_jobs.rewards.requests import Request, requests_of
from tests.support.lakes import START_US
from tests.support.repository import ROOT
from tests.support.reward_events import DAY_US, rows_of
from tests.support.session_sources import events_of

SAMPLES = Path(os.environ.get("PENSTOCK_SAMPLE_SESSIONS", "/nowhere"))
TABLE = ROOT / "tests" / "support" / "rewards" / "real_requests.tsv"

pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="PENSTOCK_SAMPLE_SESSIONS names no folder"
)


def test_most_are_divided_and_judged_as_a_person_reads_them(tmp_path: Path) -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines, delimiter="\t"))
    read = {row["message"]: row for row in rows}
    folders = sorted({row["file"].partition("/")[0] for row in rows})
    found: Counter[str] = Counter()
    for folder in folders:
        events = rows_of(tmp_path / folder, events_of(SAMPLES / folder))
        bucket = as_bucket(events, TENANT_DEFAULT, START_US + 10 * DAY_US)
        for request in requests_of(bucket).all:
            for turn in request.turns:
                digest = hashlib.sha256((turn.text or "").encode()).hexdigest()[:16]
                if (row := read.get(digest)) is not None:
                    found["messages"] += 1
                    found["requests"] += int(row["request"]) == request.number
                    found["verdicts"] += row["verdict"] == _verdict(request)
    assert found["messages"] >= len(rows), found
    assert found["requests"] / found["messages"] > 0.85
    assert found["verdicts"] / found["messages"] > 0.75


def _verdict(request: Request) -> str:
    if request.dissatisfied is None:
        return "none"
    return "bad" if request.dissatisfied >= 0.5 else "good"
