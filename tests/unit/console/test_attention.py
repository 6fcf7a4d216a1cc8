"""What the overview says needs a person."""

from dataclasses import replace

import msgspec
import pytest

from penstock.ingest.endpoints import LedgerAnswer, LedgerTotals, WaitingAnswer
from penstock.registry.channels.change import ChannelState
from penstock_jobs.loop.endpoints import CycleAnswer
from penstock_jobs.sessions.overview import Facts, notices_of

NOW_S = 1_795_219_200.0
TOTALS = LedgerTotals(accepted=1000, stored=990, duplicate=10, rejected=0, waiting=0)
LEDGER = LedgerAnswer([], TOTALS, [], [])
CHANNEL = ChannelState(
    channel="production", tenant="", version=3, checkpoint="ckpt-7", uri=None, canary_digest=None,
    canary_uri=None, since=None, changed_at="",
)  # fmt: skip
CYCLE = CycleAnswer(
    loop="five-hours", cycle=4, channel="production", budget_s=18_000, parent=None, checkpoint=None,
    outcome=None, why="", opened_at="", began_at=None, ended_at=None, took_s=60.0,
    over_budget=False, stages=[],
)  # fmt: skip
replaced = msgspec.structs.replace


def totals(**counts: int) -> LedgerAnswer:
    return replaced(LEDGER, totals=replaced(TOTALS, **counts))


WAITING = replaced(LEDGER, waiting=WaitingAnswer(12, "", "The writer stopped."))


@pytest.mark.parametrize(
    ("facts", "tone", "said", "href"),
    [
        (
            Facts(NOW_S, replaced(LEDGER, discrepancies=["2 are missing"])),
            "bad", "2 are missing", "/health",
        ),
        (Facts(NOW_S, WAITING, NOW_S - 600), "bad", "12 events have waited 10 min", "/health"),
        (Facts(NOW_S, totals(rejected=50)), "warn", "50 of 1050 lines", "/health"),
        (Facts(NOW_S, totals(dropped=5)), "warn", "dropped 5 events", "/health"),
        (
            Facts(NOW_S, LEDGER, channels=[replace(CHANNEL, pinned=True)]),
            "warn", "pinned to ckpt-7", "/checkpoints",
        ),
        (
            Facts(NOW_S, cycles=[replaced(CYCLE, outcome="failed", why="no shard")]),
            "bad", "Cycle 4 of five-hours failed: no shard", "#loops",
        ),
        (
            Facts(NOW_S, cycles=[replaced(CYCLE, over_budget=True, took_s=19_800.0)]),
            "warn", "30 min over its budget", "#loops",
        ),
        (
            Facts(NOW_S, outcomes={"censored": 30, "scored": 10}, sessions=40),
            "warn", "30 of 40 sessions are censored", "/sessions?outcome=censored",
        ),
        (Facts(NOW_S, sessions=4), "warn", "Rewards were never computed", "/rewards"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(facts: Facts, tone: str, said: str, href: str) -> None:
    [notice] = notices_of(facts)
    assert (notice.tone, notice.href) == (tone, href)
    assert said in notice.sentence


@pytest.mark.parametrize(
    "facts",
    [
        Facts(NOW_S),
        Facts(NOW_S, LEDGER, channels=[CHANNEL], cycles=[CYCLE]),
        Facts(NOW_S, WAITING, NOW_S - 5),
        Facts(NOW_S, outcomes={"censored": 5, "scored": 1}, sessions=6),
        Facts(NOW_S, outcomes={"pending": 500, "scored": 30}, sessions=530),
    ],
)
def test_what_is_well_needs_nobody(facts: Facts) -> None:
    assert notices_of(facts) == []


def test_the_gravest_comes_first() -> None:
    ledger = replaced(totals(rejected=50), discrepancies=["2 are missing"])
    channels = [replace(CHANNEL, pinned=True)]
    assert [n.tone for n in notices_of(Facts(NOW_S, ledger, channels=channels))] == [
        "bad", "warn", "warn",
    ]  # fmt: skip
