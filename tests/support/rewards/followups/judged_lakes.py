"""A lake of sessions whose last messages a judge cannot tell, with rewards computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock_jobs.rewards.definition import parse_definition
from penstock_jobs.rewards.followups.labels import JudgedFollowUp
from tests.support.lakes import HandLake, hand_lake
from tests.support.reward_events import answered, said
from tests.support.reward_runs import run_at

DEFINITION = parse_definition(
    """
    name = "judged"
    [[reward]]
    name = "dissatisfied_follow_up"
    weight = 1.0
    [[reward]]
    name = "judged_follow_up"
    """,
    "judged",
)
HOUR = 3_600


def judged_message(
    session: str, judged: float, checkpoint: str = "c", *, turn: int = 2, last_us: int = 1
) -> JudgedFollowUp:
    return JudgedFollowUp(
        session, turn, judged, checkpoint, 0, last_us, "accepts", answers=False, chain=session
    )


@contextmanager
def judged_lake(directory: Path, sessions: int) -> Iterator[HandLake]:
    with hand_lake(directory) as lake:
        for number in range(sessions):
            name = f"s{number:02}"
            text = f"well, about \x1b[2J{number}, hm\n40 of 40, chosen"
            lake.send(
                [said(1, "add b", name), answered(2, name, text="Done."), said(3, text, name)]
            )
        lake.writer().drain()
        run_at(lake, HOUR, DEFINITION)
        yield lake
