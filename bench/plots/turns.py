"""The rewards of turns: through a lake, from events to rows."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from bench.plots.drawing import COLOURS, STYLES, label, legend_beside, panels, shares
from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.definition import all_rewards
from penstock_jobs.rewards.followups.judge import evaluate, fresh_examples, held_out_examples
from penstock_jobs.rewards.followups.local_judge import LocalJudge
from penstock_jobs.rewards.measures.edits import CommentParameters as Comments
from penstock_jobs.rewards.measures.edits import reasoning_in_comments
from penstock_jobs.rewards.measures.turns import bent
from tests.support.labelled_messages import EVERYDAY, HELD_OUT, labelled_messages
from tests.support.lakes import Event, make_event
from tests.support.reward_events import answered, bucket_of, edited, said, tool

_COUNTS = range(0, 11, 2)
#: A session in which so many of ten are so.
Told = Callable[[int, str], list[Event]]


def counts_plot(path: Path) -> None:
    plots: Sequence[tuple[str, str, Told]] = (
        ("invalid_tool_calls", "calls of ten that the tool could not read", _invalid_calls),
        ("tests_passing", "tests of ten that pass", _tests),
        ("tests_failing", "tests of ten that pass", _tests),
        ("explicit_feedback", "thumbs of ten that point up", _thumbs),
        ("open_todos", "items of ten left open", _todos),
        ("only_terminal", "calls of ten that are of a terminal", _terminal),
        ("latency", "seconds until the agent is done", _slow),
    )
    with panels(path, columns=4, rows=2, size=(2.6, 2.3)) as all_axes:
        all_axes[-1].set_axis_off()
        for axes, (name, words, told) in zip(all_axes, plots, strict=False):
            axes.plot(list(_COUNTS), _values(name, told), marker="o", markersize=3, linestyle="")
            axes.set_xticks((0, 5, 10))
            axes.locator_params("y", nbins=2)
            label(axes, words, "value", name)


def _values(name: str, told: Told) -> list[float]:
    events = [event for count in _COUNTS for event in told(count, f"s{count:02}")]
    reward = all_rewards()[name]
    return _of_sessions(reward.compute(_bucket(events), reward.parameters()))


def _bucket(events: list[Event]) -> Bucket:
    with tempfile.TemporaryDirectory(prefix="penstock-plots-") as directory:
        return bucket_of(Path(directory), events)


def _of_sessions(rows: pa.Table) -> list[float]:
    found = [row for row in rows.to_pylist() if row["target_kind"] == "session"]
    return [row["value"] for row in sorted(found, key=lambda row: str(row["session_id"]))]


def _calls(count: int, session: str, chosen: str, others: str, **bad: object) -> Iterator[Event]:
    yield said(1, session=session)
    for number in range(10):
        is_chosen = number < count
        yield from tool(
            2 + number, chosen if is_chosen else others, session, **bad if is_chosen else {}
        )


def _invalid_calls(count: int, session: str) -> list[Event]:
    bad = {"ok": False, "error_class": "invalid_arguments"}
    return list(_calls(count, session, "read", "read", **bad))


def _terminal(count: int, session: str) -> list[Event]:
    return list(_calls(count, session, "bash", "read"))


def _tests(count: int, session: str) -> list[Event]:
    result = {"passed": count, "failed": 10 - count}
    return [said(1, session=session), make_event(session, 2, "test_result", payload=result)]


def _thumbs(count: int, session: str) -> list[Event]:
    thumbs = ["up"] * count + ["down"] * (10 - count)
    given = [
        make_event(session, 2 + at, "feedback", payload={"kind": "thumbs", "value": one})
        for at, one in enumerate(thumbs)
    ]
    return [said(1, session=session), *given]


def _todos(count: int, session: str) -> list[Event]:
    states = ["pending"] * count + ["completed"] * (10 - count)
    items = [{"content": f"item {at}", "status": one} for at, one in enumerate(states)]
    return [said(1, session=session), *tool(2, "TodoWrite", session, arguments={"todos": items})]


def _slow(count: int, session: str) -> list[Event]:
    return [said(1, session=session), answered(1 + count, session, text="done")]


def reasoning_in_comments_plot(path: Path) -> None:
    comment, code = f"# {'why so ' * 6}\n", f"value = compute({'x' * 30})\n"
    texts = [comment * count + code * (20 - count) for count in range(21)]
    events = [edited(1, f"{at:02}.py", "", text, f"s{at:02}") for at, text in enumerate(texts)]
    bucket = _bucket(events)
    with panels(path) as [axes]:
        for free_share in (0.2, 0.4, 0.6):
            rows = reasoning_in_comments(bucket, Comments(free_share=free_share))
            found = _of_sessions(rows)
            axes.plot(shares(20), found, label=f"free_share = {free_share:g}")
        label(axes, "share of the inserted lines that are comments", "reasoning_in_comments")
        legend_beside(axes)


def length_penalty_plot(path: Path) -> None:
    lengths = range(0, 10_001, 250)
    with panels(path) as [axes]:
        for k, q in ((1e-3, 0.0), (1e-3, 0.5), (1e-3, 1.0), (1e-3, 2.0), (1e-2, 0.5), (1e-4, 0.5)):
            words = f"k = {k:g}, q = {q:g}" + (" (the default)" if (k, q) == (1e-3, 0.5) else "")
            axes.plot(list(lengths), [bent(x, k, q) for x in lengths], label=words)
        label(axes, "x, the weighted length of the turn", "C(x); the value is −C(x)")
        legend_beside(axes)


def dissatisfied_follow_up_plot(path: Path) -> None:
    kept_back = [one for one in held_out_examples() if not one.fresh]
    with panels(path) as [axes]:
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, label="as it should be")
        for number, (words, examples) in enumerate(
            (
                ("typed between two tasks", labelled_messages(EVERYDAY)),
                ("in twenty languages", labelled_messages(HELD_OUT)),
                ("written to trip a judge of words", fresh_examples()),
                ("written with those it learned from", kept_back),
            )
        ):
            bins = evaluate(LocalJudge(), examples).dissatisfied_reliability
            predicted, observed = [one.predicted for one in bins], [one.observed for one in bins]
            colour, style = COLOURS[number], STYLES[number]
            named = f"{words} ({len(examples)} examples)"
            axes.plot(predicted, observed, color=colour, linestyle=style, linewidth=1, label=named)
            axes.scatter(predicted, observed, [8 + 2 * one.count for one in bins], colour)
        label(axes, "probability of dissatisfied, as the judge sees it", "share that was")
        axes.set_title("the larger a dot, the more examples", fontsize=9)
        legend_beside(axes)
