"""Runs over a lake that a test made: sessions, and what was made of them."""

from penstock.backends.execution.calls import InlineExecutor
from penstock.events.event import TENANT_DEFAULT
from penstock_jobs.rewards.definition import Definition, parse_definition
from penstock_jobs.rewards.runs import RewardRunReport, RunRequest, run
from tests.support.lakes import START_US, Event, HandLake, make_event
from tests.support.repository import ROOT
from tests.support.reward_events import answered, edited, said

SECOND = 1_000_000
HOUR_US = 3_600 * SECOND
DAY_US = 24 * HOUR_US
DEFINITION = parse_definition(
    """
    name = "small"
    [parameters]
    horizons_s = [0, 300]
    [[reward]]
    name = "edit_persistence"
    weight = 1.0
    horizon_s = 300
    [[reward]]
    name = "explicit_feedback"
    weight = 1.0
    """,
    "small",
)
CURRENT = "select * from rewards where superseded_at is null"
WHOLE = f"""select session_id, state, value, reason from ({CURRENT})
    where name = 'reward' and target_kind = 'session' order by session_id"""
TEXT = "a = 1\nb = compute(2)\n"


def worked(session: str, at: int = 0) -> list[Event]:
    """A session with an edit that nobody has looked at yet."""
    return [
        said(at, "add b", session),
        answered(at + 1, session, text="Done."),
        edited(at + 2, "src/app.py", "a = 1\n", TEXT, session),
    ]


def started(session: str, parent: str, link: str, at: int = 0) -> Event:
    payload = {"parent_session": parent, "link": link}
    return make_event(session, at, "session_start", event_id="begin", payload=payload)


def seen(session: str, at: int, text: str = TEXT) -> Event:
    return make_event(session, at, "file_observed", payload={"path": "src/app.py", "text": text})


def thumbs(session: str, at: int, value: str = "up") -> Event:
    return make_event(session, at, "feedback", payload={"kind": "thumbs", "value": value})


def store_samples(lake: HandLake, tenant: str = TENANT_DEFAULT) -> None:
    """Store examples/sessions, as one segment."""
    for path in sorted((ROOT / "examples" / "sessions").glob("*.jsonl")):
        assert not lake.send(path.read_bytes(), tenant).rejections, path
    lake.store()


def run_at(
    lake: HandLake, seconds: float, definition: Definition = DEFINITION, **work: object
) -> RewardRunReport:
    """As if it were so many seconds after START_US."""
    now_us = START_US + round(seconds * SECOND)
    return run(lake.lake, InlineExecutor(), RunRequest(definition, **work), now_us=now_us)  # type: ignore[arg-type]


def whole(lake: HandLake, as_of: str | None = None) -> dict[str, tuple[str, float | None]]:
    return {row["session_id"]: (row["state"], row["value"]) for row in lake.rows(WHOLE, as_of)}
