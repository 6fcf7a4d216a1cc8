"""Rewards of turns, each a function over the facts of one turn; of tests, feedback and to-do lists.

Facts are counted once for all rewards."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from itertools import groupby
from math import log
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.definition import NoParameters, Reward
from penstock_jobs.rewards.requests import RawJudgeParameters, Request, Scores, asks, requests_of
from penstock_jobs.rewards.rows import RewardRows, Standing, Target, query_rows

_TABLES = ("turns", "model_calls", "tool_calls", "edits")
TERMINAL_TOOLS = (
    "bash", "shell", "terminal", "run_terminal_cmd", "run_terminal_command", "execute_bash",
    "run_command", "exec", "exec_command", "local_shell", "powershell",
)  # fmt: skip
Turn = dict[str, Any]


class TurnScore(msgspec.Struct, frozen=True, gc=False):
    value: float | None
    reason: str | None = None
    weight: float = 1.0


#: None if the reward does not apply to the turn.
TurnScorer = Callable[[Turn], TurnScore | None]


def mean(scores: list[TurnScore]) -> TurnScore:
    """Return the weighted mean; without values, the reason of the last turn."""
    known = [(score.value, score.weight) for score in scores if score.value is not None]
    if not known:
        return TurnScore(None, scores[-1].reason, sum(score.weight for score in scores))
    weight = sum([weight for _, weight in known])
    total = sum([weight * value for value, weight in known])
    return TurnScore(total / weight if weight else 0.0, None, weight)


def turn_reward(score: TurnScorer) -> Reward:
    """Make a reward without parameters from a function, its name and its docstring."""
    name = score.__name__

    @wraps(score)
    def compute(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
        return score_turns(name, bucket, score)

    return Reward(name, 1, compute)


def score_turns(name: str, bucket: Bucket, score: TurnScorer) -> pa.Table:
    rows = RewardRows(name)
    for session, turns in facts_by_session(bucket):
        scored: list[tuple[Target, TurnScore, str | None]] = [
            (("turn", str(turn["turn"])), own, turn["checkpoint"])
            for turn in turns
            if (own := score(turn)) is not None
        ]
        if scored:
            served = {checkpoint for _, _, checkpoint in scored}
            common = served.pop() if len(served) == 1 else None
            scored.append((("session", session), mean([own for _, own, _ in scored]), common))
        for target, own, checkpoint in scored:
            value, reason, weight = own.value, own.reason, own.weight
            rows.add(session, target, value, reason, weight=weight, checkpoint=checkpoint)
    return rows.table()


def facts_by_session(bucket: Bucket) -> list[tuple[str, list[Turn]]]:
    def facts() -> list[tuple[str, list[Turn]]]:
        tables = {f"bucket_{name}": getattr(bucket, name) for name in _TABLES}
        rows = query_rows("turn_facts.sql", tables, terminal_tools=list(TERMINAL_TOOLS))
        by_session = groupby(rows, key=itemgetter("session_id"))
        return [(session, list(turns)) for session, turns in by_session]

    return bucket.once("turn facts", facts)


def asked_instead(turn: Turn) -> TurnScore | None:
    """asked_instead: did the agent ask where it could have edited.

    Measures: turns that end in a question to the user and without an edit. A model whose reward
    came from edits learned in production to put off risky ones by asking.

    Formula, per turn with an answer: 1 when there was no edit and the last sentence of the final
    message, code aside, ends with a question mark, else 0. A session is the mean of its turns.

    Range: 0 to 1: lower is better, but not 0: a good question is worth more than a wrong edit.
    pending: never. censored: `no_answer`, the agent said nothing in that turn and edited nothing.
    To game it: put the question in the middle, or ask without a question mark.
    """
    if not turn["asked"]:
        return None
    if turn["edits"]:
        return TurnScore(0.0)
    if turn["final_text"] is None:
        return TurnScore(None, "no_answer")
    return TurnScore(1.0 if asks(turn["final_text"]) else 0.0)


def explicit_feedback(bucket: Bucket, _parameters: RawJudgeParameters) -> pa.Table:
    """explicit_feedback: what users said outright.

    Measures: thumbs, accepted and rejected changes, undos, as the view `feedback` has them.

    Formula, per request with such feedback: (positive − negative) / (positive + negative). A
    session is the mean of its requests by size.

    Range: −1, all negative, to 1, all positive.
    pending, censored, invalid: never. Requests without feedback have no row: silence is no praise.
    To game it: flatter. Ratings and comments do not count, since their scale is the producer's.
    """
    requests, scores = requests_of(bucket), dict[Request, Scores]()
    for request in requests.all:
        for disliked in request.disliked():
            scores[request] = {None: Standing("scored", 1 - 2 * disliked)}
    return requests.rows("explicit_feedback", scores)


def invalid_tool_calls(turn: Turn) -> TurnScore | None:
    """invalid_tool_calls: did the model call its tools as they can be called.

    Measures: calls that the tool could not understand (`error_class` is `invalid_arguments`). A
    model was seen to break calls on purpose where broken ones were left out of training.

    Formula, per turn with tool calls: − invalid calls / calls. A session is the mean of its turns,
    weighted by their calls.

    Range: −1, all are broken, to 0, none is.
    pending, censored, invalid: never. Turns without a tool call have no row.
    To game it: call fewer tools, or a terminal, which takes anything: read it beside
    `only_terminal`.
    """
    calls = turn["tool_calls"]
    if not calls:
        return None
    return TurnScore(0.0 - turn["invalid_tool_calls"] / calls, weight=calls)


def latency(turn: Turn) -> TurnScore | None:
    """latency: how long the user waited for the agent.

    Measures: the time from a user's message to the agent's last act before the next message.

    Formula, per turn: seconds between the two. A session is the mean of its turns.

    Range: 0 and up, in seconds: lower is better. Give it a negative weight and a clip.
    pending: never. censored: `no_answer`, the agent did nothing in that turn. Turns before the
    first message have no row.
    To game it: answer at once with nothing, or ask back: read it beside `asked_instead`. Waiting
    for the user's permission counts as the agent's time.
    """
    if not turn["asked"]:
        return None
    if turn["answer_seconds"] is None:
        return TurnScore(None, "no_answer")
    return TurnScore(turn["answer_seconds"])


def tests_passing(bucket: Bucket, _parameters: RawJudgeParameters) -> pa.Table:
    """tests_passing: do the tests pass when the agent is done.

    Measures: the last `test_result` of a request, whoever ran it.

    Formula, per request with a test result: passed / (passed + failed); where nobody counted, 1
    when it was `ok` and 0 when not. A session is the mean of its requests by size.
    Range: 0, all fail, to 1, all pass.
    pending: never. censored: `nothing_ran`, the result has neither a count nor `ok`. Requests
    without a test result have no row.
    To game it: delete or skip the tests that fail, or run only those that pass.
    """
    return requests_of(bucket).rows("tests_passing", _test_scores(bucket, 0.0))


def tests_failing(bucket: Bucket, _parameters: RawJudgeParameters) -> pa.Table:
    """tests_failing: do tests fail when the agent is done.

    Measures: what tests_passing measures, as a loss: nothing is won by running trivial tests.

    Formula, per request with a test result: tests_passing − 1.
    Range: −1, all fail, to 0, all pass.
    pending: never. censored: as tests_passing says. Requests without a test result have no row.
    To game it: run no tests, or delete those that fail.
    """
    return requests_of(bucket).rows("tests_failing", _test_scores(bucket, -1.0))


def _test_scores(bucket: Bucket, added: float) -> dict[Request, Scores]:
    scores: dict[Request, Scores] = {}
    for request in requests_of(bucket).all:
        runs = [turn.test_run for turn in request.turns if turn.test_run is not None]
        if runs:
            _, passed = max(reversed(runs), key=itemgetter(0))
            scores[request] = {None: Standing("censored", reason="nothing_ran")}
            if passed is not None:
                scores[request] = {None: Standing("scored", added + passed)}
    return scores


@dataclass(frozen=True)
class TerminalParameters:
    """A turn with fewer tool calls than `calls_min` is not scored."""

    calls_min: int = 4


def only_terminal(bucket: Bucket, parameters: TerminalParameters) -> pa.Table:
    """only_terminal: did the agent do everything through a terminal.

    Measures: a collapse that was seen in training: a model with edit, search and read tools calls
    nothing but the terminal, since a terminal takes anything.

    Formula, per turn with at least `calls_min` tool calls: −1 when all were of a terminal, else 0.
    A session is the mean of its turns.

    Range: −1 to 0.
    pending, censored, invalid: never. Turns with fewer tool calls have no row.
    To game it: a read for show among the commands. Leave it out where agents have a terminal alone.
    """

    def score(turn: Turn) -> TurnScore | None:
        if turn["tool_calls"] < parameters.calls_min:
            return None
        return TurnScore(-1.0 if turn["terminal_calls"] == turn["tool_calls"] else 0.0)

    return score_turns("only_terminal", bucket, score)


#: By length, the column with it.
_LENGTHS = {
    "thinking": "thinking_tokens", "calling": "calling_tokens", "output": "output_chars",
    "final": "final_tokens", "calls": "tool_calls", "rounds": "model_calls",
}  # fmt: skip


@dataclass(frozen=True)
class LengthParameters:
    """`k` is per unit of x. The weights combine six lengths into one."""

    k: float = 1e-3
    q: float = 0.5
    weight_thinking: float = 1.0
    weight_calling: float = 1.0
    weight_output: float = 0.1
    weight_final: float = 1.0
    weight_calls: float = 50.0
    weight_rounds: float = 50.0
    output_chars_per_token: float = 4.0

    def __post_init__(self) -> None:
        if self.k <= 0 or self.q < 0 or self.output_chars_per_token <= 0:
            raise ValueError("k and output_chars_per_token must be above 0, q at least 0")


def length_penalty(bucket: Bucket, parameters: LengthParameters) -> pa.Table:
    """length_penalty: what an answer cost, so that it is short where that is easy.

    Measures: six lengths of each turn, weighted into one x, and bent so that the first tokens weigh
    more than the last: a hard task may take its time.

    Formula, per turn, with k > 0 and q ≥ 0:

        x = Σ weight · length      C(x) = ((1 + k·x)^(1−q) − 1) / (k·(1−q));  q = 1: ln(1 + k·x) / k

    The value is −C(x). A session is the mean of its turns. The lengths are rewards of their own:
    `length_thinking`, `length_calling`, `length_output`, `length_final` (tokens), `length_calls`
    and `length_rounds` (tool calls, model calls). Tokens of tool calls are all but the thinking
    that a model call with tool calls completed; tokens of tool output are characters
    / `output_chars_per_token`.

    Range: 0 and down.
    pending: never. censored: `no_usage`, a model call did not say how many tokens it took, or said
    what cannot be. Turns without a model call have no row.
    To game it: stop early, or ask back. It has to stand beside what rewards work.
    """

    weights = {name: getattr(parameters, f"weight_{name}") for name in _LENGTHS}

    def size(name: str, turn: Turn) -> float:
        units = parameters.output_chars_per_token if name == "output" else 1.0
        return float(turn[_LENGTHS[name]] or 0) / units

    def penalty(turn: Turn) -> TurnScore | None:
        if not turn["model_calls"]:
            return None
        if turn["without_usage"]:
            return TurnScore(None, "no_usage")
        x = sum([weight * size(name, turn) for name, weight in weights.items()])
        return TurnScore(0.0 - bent(x, parameters.k, parameters.q))

    def length(name: str, turn: Turn) -> TurnScore | None:
        if not turn["model_calls"]:
            return None
        if turn["without_usage"] and name in ("thinking", "calling", "final"):
            return TurnScore(None, "no_usage")
        return TurnScore(size(name, turn))

    of_lengths = [score_turns(f"length_{name}", bucket, partial(length, name)) for name in _LENGTHS]
    return pa.concat_tables([score_turns("length_penalty", bucket, penalty), *of_lengths])


def bent(x: float, k: float, q: float) -> float:
    if abs(q - 1) < 1e-9:
        return log(1 + k * x) / k
    return float(((1 + k * x) ** (1 - q) - 1) / (k * (1 - q)))


_TODO_TOOLS = (
    "todowrite", "todo_write", "update_plan", "write_todos", "update_todo_list", "task_tracker",
)  # fmt: skip
_DONE = frozenset(("completed", "complete", "done", "cancelled", "canceled"))
_LISTS = ("todos", "plan", "items", "task_list", "tasks")


def open_todos(bucket: Bucket, _parameters: NoParameters) -> pa.Table:
    """open_todos: did the agent finish what it had put on its own list.

    Measures: the to-do list of a session as it last stood: the arguments of the last call of a tool
    that writes one (`TodoWrite`, `update_plan` and the like).

    Formula, per session with a list: − items that are neither completed nor cancelled / items.
    Range: −1, nothing was done, to 0, all is.
    pending: never. censored: `unreadable`, the arguments are not a list of items with a status.
    Sessions without a list have no row.
    To game it: make no list, or a short one; tick off what was not done.
    """
    rows = RewardRows("open_todos")
    last_lists: dict[str, tuple[tuple[int, int], str | None, str | None]] = {}
    calls = bucket.tool_calls
    if calls.num_rows:
        calls = calls.filter(pc.is_in(pc.utf8_lower(calls["tool"]), pa.array(_TODO_TOOLS)))
        columns = ["session_id", "ts", "seq", "arguments", "ok", "checkpoint"]
        for row in calls.select(columns).to_pylist():
            if row["ok"] is False:  # the tool refused it
                continue
            session, when = row["session_id"], (row["ts"], -1 if row["seq"] is None else row["seq"])
            if session not in last_lists or when >= last_lists[session][0]:
                last_lists[session] = (when, row["arguments"], row["checkpoint"])
    for session, (_, arguments, checkpoint) in sorted(last_lists.items()):
        items = _statuses(arguments)
        if items is None:
            rows.add(session, ("session", session), None, "unreadable", checkpoint=checkpoint)
        elif items:
            value = 0.0 - sum(status not in _DONE for status in items) / len(items)
            rows.add(session, ("session", session), value, checkpoint=checkpoint)
    return rows.table()


def _statuses(arguments: str | None) -> list[str] | None:
    """Return the statuses of items; None if they are unreadable."""
    try:
        items = msgspec.json.decode(arguments or "")
    except msgspec.DecodeError:
        return None
    if isinstance(items, str):  # some providers send JSON in a string
        return _statuses(items)
    if isinstance(items, dict):
        items = next((items[name] for name in _LISTS if name in items), None)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    return [str(item.get("status", "")).lower() for item in items]


REWARDS = (
    turn_reward(asked_instead),
    Reward("explicit_feedback", 2, explicit_feedback, RawJudgeParameters),
    turn_reward(invalid_tool_calls),
    turn_reward(latency),
    Reward("tests_failing", 2, tests_failing, RawJudgeParameters),
    Reward("tests_passing", 2, tests_passing, RawJudgeParameters),
    Reward("open_todos", 1, open_todos),
    Reward("only_terminal", 1, only_terminal, TerminalParameters),
    Reward("length_penalty", 1, length_penalty, LengthParameters),
)
