"""`penstock rewards label`: who is asked what, and what becomes of the answers."""

import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from penstock.events.event import TENANT_DEFAULT
from penstock_jobs.rewards.due_sessions import definition_known_as
from penstock_jobs.rewards.followups import questions as asking
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.labels import (
    JudgedFollowUps,
    MessagePlace,
    StoredLabel,
    add_label,
    by_people,
    current_labels,
    draw,
    labels_of,
    people_first,
)
from penstock_jobs.rewards.followups.questions import (
    Question,
    QuestionFrame,
    kept_frame,
    questions,
    read_frame,
)
from tests.support.commands import penstock
from tests.support.lakes import HandLake, hand_lake
from tests.support.reward_events import answered, said
from tests.support.reward_runs import run_at
from tests.support.rewards.followups.judged_lakes import (
    DEFINITION,
    HOUR,
    judged_lake,
    judged_message,
)

SESSIONS = 12


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with judged_lake(tmp_path, SESSIONS) as lake:
        yield lake


def label(
    lake: HandLake, keys: str, monkeypatch: pytest.MonkeyPatch, *more: str
) -> CompletedProcess[str]:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{key}\n" for key in keys)))
    data = str(lake.lake.settings.data)
    return penstock(
        "rewards", "label", "--definition", "judged", "--data", data, "--by", "ann", *more
    )


def stored(lake: HandLake) -> list[StoredLabel]:
    return current_labels(lake.lake.database, TENANT_DEFAULT)


def test_keys_answer_undo_and_stop(lake: HandLake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = label(lake, "mzcus", monkeypatch)
    assert first.returncode == 0, first.stderr
    assert "1 labels by ann are stored" in first.stdout
    assert [(each.label, each.by, each.drawn) for each in stored(lake)] == [
        ("moves_on", "ann", True)
    ]
    # It goes on where it stopped: what was taken back is asked again.
    label(lake, "fn", monkeypatch)
    assert [each.label for each in stored(lake)] == ["moves_on", "reports_failure", "unclear"]
    places = [draw(TENANT_DEFAULT, each.place) for each in stored(lake)]
    rest = {f"s{number:02}" for number in range(SESSIONS)} - {e.session_id for e in stored(lake)}
    assert places == sorted(places)
    assert max(places) < min(draw(TENANT_DEFAULT, MessagePlace(name, 2)) for name in rest)


def test_texts_of_others_neither_control_the_terminal_nor_pass_for_ours(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = label(lake, "s", monkeypatch).stdout
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown
    assert not [line for line in shown.splitlines() if line.startswith("40 of 40, chosen")]


def test_a_label_settles_the_reward_at_the_next_run(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    label(lake, "cm", monkeypatch)
    wrong, fine = (each.session_id for each in stored(lake))
    report = run_at(lake, 2 * HOUR, DEFINITION)
    assert (report.sessions, report.matured) == (2, 2)
    rows = lake.rows("""select session_id, value from rewards where target_kind = 'session'
        and name = 'dissatisfied_follow_up' and superseded_at is null""")
    values = {row["session_id"]: row["value"] for row in rows}
    assert (values[wrong], values[fine]) == (-1.0, 0.0)


def test_a_label_is_of_words_not_of_a_number(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    label(lake, "c", monkeypatch)
    [one] = stored(lake)
    labels = labels_of(lake.lake.database, TENANT_DEFAULT, [one.session_id])
    number = int(one.session_id[1:])
    same = Message(text=f"well, about \x1b[2J{number}, hm\n40 of 40, chosen")
    assert labels.of_message(MessagePlace(one.session_id, 5), same) == one
    assert labels.of_message(one.place, Message(text="well")) is None


def test_nothing_to_ask(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store([said(1), answered(2, text="Done.")])
        run_at(lake, HOUR, DEFINITION)
        asked = penstock("rewards", "label", "--definition", "judged", "--data", str(tmp_path))
    assert asked.returncode == 2
    assert "no follow-ups" in asked.stderr


def test_people_outrank_models(lake: HandLake) -> None:
    version = definition_known_as(lake.lake.database, "judged").version
    facts = {"session_id": "s00", "turn": 2, "message": "x", "drawn": True, "until_us": 1, "at": 0}
    by_model = StoredLabel(label="moves_on", by="llm m", is_model=True, **facts)  # type: ignore[arg-type]
    by_ann = StoredLabel(label="corrects", by="ann", is_model=False, **facts)  # type: ignore[arg-type]
    for each in (by_ann, by_model):
        add_label(lake.lake.database, TENANT_DEFAULT, each, version)
    [counted] = people_first(stored(lake))
    assert (counted.label, counted.by) == ("corrects", "ann")
    # Taken back, the model's word is left.
    add_label(lake.lake.database, TENANT_DEFAULT, by_ann._replace(label=None), version)
    [counted] = people_first(stored(lake))
    assert counted.by == "llm m"


def test_labels_are_a_view(lake: HandLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that was taken back, without any text, and of one's own tenant alone."""
    label(lake, "mcun", monkeypatch)
    rows = lake.rows("select * from labels order by labelled_at")
    assert [(row["label"], row["dissatisfied"]) for row in rows] == [
        ("moves_on", 0.0), ("corrects", 1.0), (None, None), ("unclear", 0.5),
    ]  # fmt: skip
    assert [row["superseded_at"] is None for row in rows] == [True, False, False, True]
    assert {(row["labelled_by"], row["is_model"], row["drawn"]) for row in rows} == {
        ("ann", False, True)
    }
    assert lake.rows("select * from labels", tenant="other") == []
    assert lake.rows("select * from labels", "1970-01-02T00:00:00Z") == []


def frame(judged: dict[str, list[float]]) -> QuestionFrame:
    found = [
        judged_message(session, chance, turn=turn)
        for session, chances in judged.items()
        for turn, chance in enumerate(chances)
    ]
    waiting = JudgedFollowUps.of("t", found)
    return QuestionFrame("v", waiting, len(found), 0, 1)


def test_every_message_is_asked_once_and_what_decides_a_request_too() -> None:
    asked = frame({f"s{number}": [0.1 * number, 0.5] for number in range(9)})
    everything = list(questions(asked, []))
    assert len({question.place for question in everything}) == len(everything) == 18
    # The last message of a conversation ends a request: what was said before counts too.
    facts = {"message": "", "drawn": True, "until_us": 1, "by": "ann", "is_model": False}
    labels = [StoredLabel("s0", 1, label="asks", **facts)]  # type: ignore[arg-type]
    needed = questions(frame({"s0": [0.5, 0.5]}), labels)
    assert [question.place for question in needed] == [("s0", 0)]


def test_kept_questions_are_those_of_all_messages(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the rewards are others; labels and labels taken back count at once."""
    monkeypatch.setattr(asking, "_KEPT_MAX", 4)
    version = definition_known_as(lake.lake.database, "judged").version

    def both() -> tuple[list[Question], list[Question]]:
        labels = by_people(stored(lake))
        places = frozenset(each.place for each in labels)
        kept = kept_frame(lake.lake, version, TENANT_DEFAULT, None, labels)
        whole = read_frame(lake.lake, version, TENANT_DEFAULT)
        every = list(questions(whole, labels))
        assert kept.counts(places) == (len(every), whole.waiting - len(every))
        return list(islice(questions(kept, labels), 2)), every[:2]

    asked = []
    for _ in range(3):
        mine, every = both()
        assert mine == every
        asked.append(mine[0].place)
        label(lake, "c", monkeypatch, "--count", "1")
    assert len(set(asked)) == 3
    lake.store(
        [said(9, "no, wrong", "s00"), answered(10, "s00", text="Done."), said(11, "b", "s00")]
    )
    before = read_frame(lake.lake, version, TENANT_DEFAULT).waiting
    run_at(lake, 2 * HOUR, DEFINITION)
    assert read_frame(lake.lake, version, TENANT_DEFAULT).waiting > before
    mine, every = both()
    assert mine == every
