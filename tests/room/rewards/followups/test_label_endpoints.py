"""Labels asked for and given as calls, and what they did to the rate."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.endpoint import Caller
from penstock.core.errors import InvalidInput
from penstock.lake.client import LocalClient
from penstock_jobs.rewards.followups.label_endpoints import (
    LABEL,
    LABEL_RATES,
    NEXT_LABEL,
    UNDO,
    AlreadyLabelled,
    CheckpointLabels,
    EffectRequest,
    LabelOrder,
    MessageUnknown,
    NextLabelRequest,
    NothingToUndo,
    OpenMessage,
    UndoRequest,
    effect_by_checkpoint,
)
from penstock_jobs.rewards.followups.labels import (
    JudgedFollowUps,
    LabelRepeats,
    StoredLabel,
    current_labels,
    draw,
)
from tests.support.lakes import HandLake
from tests.support.rewards.followups.judged_lakes import judged_lake, judged_message


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with judged_lake(tmp_path, 3) as lake:
        yield lake


def _client(lake: HandLake, who: str = "ann") -> LocalClient:
    return LocalClient(lake.lake, Caller("default", who))


def _next(client: LocalClient) -> OpenMessage:
    message = client.call(NEXT_LABEL, NextLabelRequest(definition="judged")).next
    assert message is not None
    return message


def _order(message: OpenMessage, label: str) -> LabelOrder:
    return LabelOrder(
        session_id=message.session_id,
        turn=message.turn,
        message=message.message,
        drawn=message.drawn,
        again=message.again,
        until_us=message.until_us,
        label=label,
        definition="judged",
    )


def _counts(client: LocalClient) -> dict[str, int]:
    return client.call(LABEL_RATES, EffectRequest(definition="judged")).labels


def test_what_is_asked_is_labelled_and_taken_back(lake: HandLake) -> None:
    client = _client(lake)
    asked = []
    for label in ("corrects", "asks", "unclear"):
        message = _next(client)
        asked.append(message.session_id)
        assert client.call(LABEL, _order(message, label)).by == "ann"
    assert sorted(asked) == ["s00", "s01", "s02"]
    answer = client.call(NEXT_LABEL, NextLabelRequest(definition="judged"))
    assert (answer.next, answer.open, answer.labelled) == (None, 0, 3)
    assert _counts(client) == {"corrects": 1, "asks": 1, "unclear": 1}
    for session in reversed(asked):
        assert client.call(UNDO, UndoRequest(definition="judged")).session_id == session
    assert _counts(client) == {}
    with pytest.raises(NothingToUndo):
        client.call(UNDO, UndoRequest(definition="judged"))


def test_one_message_in_ten_is_asked_a_second_time(tmp_path: Path) -> None:
    with judged_lake(tmp_path, 12) as lake:
        client, asked = _client(lake), []
        for number in range(11):
            message = _next(client)
            asked.append((message.session_id, message.again))
            client.call(LABEL, _order(message, "asks" if number < 10 else "reverts"))
        again = [number for number, (_, is_second) in enumerate(asked) if is_second]
        assert again == [10]
        assert {asked[number][0] for number in again} < {
            name for name, second in asked if not second
        }
        assert sum(_counts(client).values()) == 10, "a second label changes no first one"
        first, second = (
            current_labels(lake.lake.database, "default", again=each) for each in (False, True)
        )
        assert LabelRepeats.of(first, second) == (1, 1)
        assert client.call(UNDO, UndoRequest(definition="judged")).session_id == asked[-1][0]
        assert _next(client).again


def test_nobody_undoes_what_another_said(lake: HandLake) -> None:
    message = _next(_client(lake))
    _client(lake).call(LABEL, _order(message, "reverts"))
    with pytest.raises(NothingToUndo):
        _client(lake, "bob").call(UNDO, UndoRequest(definition="judged"))
    with pytest.raises(AlreadyLabelled, match="ann has already labelled this message as reverts"):
        _client(lake, "bob").call(LABEL, _order(message, "asks"))
    assert _counts(_client(lake)) == {"reverts": 1}


def test_a_label_is_of_the_words_that_were_read(lake: HandLake) -> None:
    client = _client(lake)
    message = _next(client)
    message.message = "0" * 64
    with pytest.raises(MessageUnknown):
        client.call(LABEL, _order(message, "asks"))
    with pytest.raises(InvalidInput, match="use one of moves_on"):
        client.call(LABEL, _order(_next(client), "likes"))
    assert _counts(client) == {}


def test_intervals_come_with_thirty_requests_and_narrow_with_more_but_for_errors() -> None:
    follow_ups = [
        judged_message(f"s{number:03}", 0.2 + 0.6 * (number % 4 == 0), f"c{number % 2}")
        for number in range(200)
    ]
    by_place = sorted(follow_ups, key=lambda each: draw("default", each.place))
    facts = {"message": "m", "drawn": True, "until_us": 1, "by": "ann", "is_model": False}
    labels = [
        StoredLabel(*each.place, label="corrects" if each.judged > 0.5 else "moves_on", **facts)  # type: ignore[arg-type]
        for each in by_place[:150]
    ]
    columns = JudgedFollowUps.of("default", follow_ups)

    def found(count: int, repeats: LabelRepeats) -> list[CheckpointLabels]:
        return effect_by_checkpoint(columns, labels[:count], repeats)

    never = LabelRepeats(0, 0)
    assert [each.value for each in found(20, never)] == [None, None]
    few, many, wrong = found(100, never), found(150, never), found(150, LabelRepeats(30, 6))
    assert [each.checkpoint for each in many] == ["c0", "c1"]
    assert sum(each.labels for each in many) == sum(each.drawn for each in many) == 150
    assert {each.truth_by for each in many} == {"people"}
    widths = [(each[0].high or 1) - (each[0].low or 0) for each in (many, few, wrong)]
    assert widths == sorted(widths)
