"""Rules for single rows of a shard. Pure, and vectorized over rows.

A rule yields the first row that breaks it, and why. `RULES` rely on `SHAPES`, which are checked
before.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.shards.schema import (
    HINT_COLUMNS,
    ROLES,
    SHARD_ROWS,
    ListColumn,
    Rows,
    Split,
    Status,
    TokenSource,
)


class BrokenRule(NamedTuple):
    row: int
    rule: str
    why: str


Broken = Iterator[tuple[int, str]]
Rule = Callable[[Rows], Broken]


def first_broken(rows: Rows) -> BrokenRule | None:
    if not rows.count:
        return None
    for rules in (SHAPES, RULES):
        pairs = ((rule.__name__, broken) for rule in rules for broken in rule(rows))
        if broken := [BrokenRule(row, name, why) for name, (row, why) in pairs]:
            return min(broken, key=lambda rule: rule.row)
    return None


def _first(bad: np.ndarray, of_row: np.ndarray | None = None) -> Iterator[int]:
    """Find the first bad row; `of_row` maps each mark to its row."""
    if bad.any():
        first = int(bad.argmax())
        yield first if of_row is None else int(of_row[first])


def _check(bad: np.ndarray, why: str, of_row: np.ndarray | None = None) -> Broken:
    for row in _first(bad, of_row):
        yield row, why


def required(rows: Rows) -> Broken:
    for field in SHARD_ROWS:
        if not field.nullable and rows.column(field.name).null_count:
            yield from _check(~rows.present(field.name), f"it has no {field.name}")


def required_parts(rows: Rows) -> Broken:
    for field in SHARD_ROWS:
        if not (pa.types.is_list(field.type) or pa.types.is_large_list(field.type)):
            continue
        lists = rows.lists(field.name)
        parts = {field.name: lists.values}
        if pa.types.is_struct(lists.values.type):
            needed = [part.name for part in lists.values.type if not part.nullable]
            parts |= {f"{field.name}.{name}": lists.values.field(name) for name in needed}
        for name, values in parts.items():
            if values.null_count:
                missing = values.is_null().to_numpy(zero_copy_only=False)
                yield from _check(missing, f"there is a null in {name}", lists.rows)


def lengths(rows: Rows) -> Broken:
    if rows.column("n_tokens").null_count:
        return
    yield from _check(rows.tokens < 1, "it has no tokens")
    for name in ("input_ids", "loss_mask", "rollout_logprobs"):
        lists = rows.lists(name)
        for row in _first(lists.valid & (lists.lengths != rows.tokens)):
            yield row, f"{name} has {lists.lengths[row]} values, but n_tokens is {rows.tokens[row]}"


def mask_values(rows: Rows) -> Broken:
    if rows.mask.max() > 1:
        yield rows.row_of(int((rows.mask > 1).argmax())), "loss_mask is neither 0 nor 1"


def n_trainable(rows: Rows) -> Broken:
    stated = rows.numbers("n_trainable")
    for row in _first(stated != rows.trained):
        yield row, f"n_trainable is {stated[row]}, but the mask has {rows.trained[row]}"


def something_trained(rows: Rows) -> Broken:
    masked = _equal(rows, "status", "masked") | (rows.numbers("loss_weight") == 0)
    why = "none of its tokens is trained, but it is not marked as masked"
    yield from _check((rows.trained == 0) & ~masked, why)


def prompt_len(rows: Rows) -> Broken:
    stated = rows.numbers("prompt_len")
    for row in _first((stated < 0) | (stated > rows.first_trained)):
        first = rows.first_trained[row]
        yield row, f"prompt_len is {stated[row]}, but the first trained token is {first}"


def logprobs(rows: Rows) -> Broken:
    lists = rows.lists("rollout_logprobs")
    values = lists.numbers()
    if not len(values):
        return
    mask = rows.mask
    if not lists.valid.all():
        mask = mask[np.repeat(lists.valid, rows.tokens)]
    for why, bad in (
        ("a log-probability is not finite", ~np.isfinite(values)),
        ("a log-probability is above 0", values > 0),
        ("a log-probability off the mask is not 0", (values != 0) > mask),
    ):
        if bad.any():
            at = int(bad.argmax())
            yield int(np.searchsorted(lists.offsets, at, side="right")) - 1, why


def token_ids(rows: Rows) -> Broken:
    ids = rows.lists("input_ids").numbers()
    if ids.min() < 0:
        yield rows.row_of(int((ids < 0).argmax())), "a token id is below 0"


def spans(rows: Rows) -> Broken:
    start, end, role = (rows.spans.numbers(name) for name in ("start", "end", "role"))
    of_row = rows.spans.rows
    outside = (start < 0) | (start >= end) | (end > rows.tokens[of_row])
    yield from _check(outside, "a turn's span is empty or not inside the sequence", of_row)
    behind = (of_row[1:] == of_row[:-1]) & (start[1:] < end[:-1])
    yield from _check(behind, "turn spans overlap or are not in order", of_row[1:])
    yield from _check((role < 0) | (role >= len(ROLES)), "a turn's role is unknown", of_row)


def mask_on_sampled(rows: Rows) -> Broken:
    inside = np.bincount(rows.spans.rows, weights=rows.trained_in_spans, minlength=rows.count)
    yield from _check(inside != rows.trained, "a trained token is in no sampled span")


def version_runs(rows: Rows) -> Broken:
    runs = rows.lists("policy_version_runs")
    yield from _ascending(rows, runs, "start", "a run of policy versions")
    yield from _covering(rows, runs, "a run of policy versions")
    version, filled = runs.numbers("version"), runs.lengths > 0
    back = (runs.rows[1:] == runs.rows[:-1]) & (version[1:] < version[:-1])
    yield from _check(back, "policy versions go back", runs.rows[1:])
    for name, reduce in (("min_policy_version", np.minimum), ("max_policy_version", np.maximum)):
        stated = pc.fill_null(rows.column(name), -1).to_numpy()
        true = np.full(rows.count, -1, np.int64)
        if filled.any():
            true[filled] = reduce.reduceat(version, runs.offsets[:-1][filled])
        yield from _check(stated != true, f"{name} differs from the runs")


def temperature_runs(rows: Rows) -> Broken:
    runs = rows.lists("temperature_runs")
    yield from _ascending(rows, runs, "start", "a run of temperatures")
    yield from _covering(rows, runs, "a run of temperatures")
    stated = np.nan_to_num(rows.numbers("temperature"), nan=-1.0)[runs.rows]
    other = (stated >= 0) & (stated != runs.numbers("temperature"))
    yield from _check(other, "temperature differs from the runs", runs.rows)


def token_rewards(rows: Rows) -> Broken:
    yield from _ascending(rows, rows.lists("token_rewards"), "pos", "a token reward")


def _ascending(rows: Rows, records: ListColumn, field: str, what: str) -> Broken:
    place, of_row = records.numbers(field), records.rows
    outside = (place < 0) | (place >= rows.tokens[of_row])
    yield from _check(outside, f"{what} is outside the sequence", of_row)
    behind = (of_row[1:] == of_row[:-1]) & (place[1:] <= place[:-1])
    yield from _check(behind, f"{what} does not follow the one before", of_row[1:])


def _covering(rows: Rows, runs: ListColumn, what: str) -> Broken:
    filled = runs.lengths > 0
    first = np.full(rows.count, np.iinfo(np.int64).max)
    first[filled] = runs.numbers("start")[runs.offsets[:-1][filled]]
    uncovered = runs.valid & (rows.trained > 0) & (first > rows.first_trained)
    yield from _check(uncovered, f"a trained token is not in {what}")


def finite_numbers(rows: Rows) -> Broken:
    for name in ("temperature", "advantage", "reward", "loss_weight"):
        infinite = rows.present(name) & ~np.isfinite(rows.numbers(name))
        yield from _check(infinite, f"{name} is not finite")
    for path in (
        *("reward_components.value", "reward_components.weight", "token_rewards.value"),
        "temperature_runs.temperature",
    ):
        name, field = path.split(".")
        lists = rows.lists(name)
        yield from _check(~np.isfinite(lists.numbers(field)), f"{path} is not finite", lists.rows)
    yield from _check(rows.numbers("loss_weight") < 0, "loss_weight is below 0")


def known_words(rows: Rows) -> Broken:
    words: dict[str, Any] = {"status": Status, "token_source": TokenSource, "split": Split}
    for name, kind in words.items():
        known = pc.is_in(rows.column(name), value_set=pa.array(get_args(kind)))
        for row in _first(~known.to_numpy(zero_copy_only=False)):
            yield row, f"{name} is {rows.column(name)[row].as_py()!r}"


def consent(rows: Rows) -> Broken:
    yield from _check(_equal(rows, "consent", "no_train"), "its user did not consent to training")


def documents(rows: Rows) -> Broken:
    lists, text = rows.lists("documents"), _equal(rows, "token_source", "text")
    bad = np.where(text, lists.lengths != rows.spans.lengths, lists.valid)
    yield from _check(bad, "it has documents, but not one for each turn span of a text")


def branch_numbers(rows: Rows) -> Broken:
    index, count = rows.numbers("branch_index"), rows.numbers("n_branches")
    for row in _first((index < 0) | (index >= count) | (rows.numbers("chain_pos") < 0)):
        yield row, f"it is branch {index[row]} of {count[row]}"


class _Pair(msgspec.Struct):
    kind: str
    prompt: int
    chosen: list[Any]
    rejected: list[Any]
    files: list[str] = []


_pairs_decoder = msgspec.json.Decoder(list[_Pair])


def preferences(rows: Rows) -> Broken:
    for row in np.flatnonzero(rows.present("preferences")).tolist():
        pairs, messages = (rows.column(name)[row].as_py() for name in ("preferences", "messages"))
        if why := _broken_pair(pairs, messages):
            yield row, why
            return


def _broken_pair(preferences: str, messages: str) -> str | None:
    try:
        pairs, told = _pairs_decoder.decode(preferences), msgspec.json.decode(messages, type=list)
    except msgspec.MsgspecError:
        return "its preferences are no list of pairs of answers"
    for pair in pairs:
        if not 0 <= pair.prompt <= len(told) or pair.chosen == pair.rejected:
            return "a pair of preferences has no place among the messages, or two equal answers"
        if pair.kind != "edited":
            continue
        if told[pair.prompt : pair.prompt + 1] != pair.rejected:
            return "what a user is said to have edited is not in the messages"
        for part in _differing(pair.chosen, pair.rejected):
            if not any(_holds_lines(file, part) for file in pair.files):
                return "a chosen text is not whole lines of the file as the user left it"
    return None


def _differing(chosen: Any, rejected: Any) -> Iterator[Any]:
    """Find the parts of an answer that differ from the other, in the arguments of calls too."""
    if chosen == rejected:
        return
    if isinstance(chosen, list) and isinstance(rejected, list) and len(chosen) == len(rejected):
        chosen, rejected = dict(enumerate(chosen)), dict(enumerate(rejected))
    if isinstance(chosen, dict) and isinstance(rejected, dict) and chosen.keys() == rejected.keys():
        for name, value in chosen.items():
            decode = _decoded if name == "arguments" else lambda part: part
            yield from _differing(decode(value), decode(rejected[name]))
    else:
        yield chosen


def _decoded(text: Any) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, TypeError):
        return text


def _holds_lines(file: str, part: Any) -> bool:
    """Whether a text is whole lines of a file. The first may lack its indentation."""
    body = part.removesuffix("\n") if isinstance(part, str) else ""
    at = file.find(body) if body else -1
    while at >= 0:
        indentation = file[file.rfind("\n", 0, at) + 1 : at]
        end = at + len(body)
        if not indentation.strip(" \t") and file[end : end + 1] in ("", "\n"):
            return True
        at = file.find(body, at + 1)
    return False


def hints(rows: Rows) -> Broken:
    hinted = rows.present("hint")
    for name in filter("hint_event_id".__ne__, HINT_COLUMNS):  # an event may have no id
        yield from _check(rows.present(name) != hinted, f"it has a hint in part: see {name}")
    if not hinted.any():
        return
    place, start, end = (rows.numbers(f"hint_{name}") for name in ("position", "start", "end"))
    ahead = (place < 0) | (place >= rows.numbers("prompt_len"))
    yield from _check(hinted & ahead, "its hint does not stand within the prompt")
    within = (start >= rows.numbers("prompt_len")) & (start < end) & (end <= rows.tokens)
    yield from _check(hinted & ~within, "its hint is about no tokens behind the prompt")
    ids = rows.lists("hint_ids")
    yield from _check(hinted & (ids.lengths == 0), "its hint has no tokens")
    yield from _check(ids.numbers() < 0, "a token of its hint is below 0", ids.rows)


def _equal(rows: Rows, name: str, word: str) -> np.ndarray:
    return np.asarray(pc.equal(rows.column(name), word).to_numpy(zero_copy_only=False))


SHAPES: tuple[Rule, ...] = (required, required_parts, lengths)
RULES: tuple[Rule, ...] = (
    mask_values, n_trainable, something_trained, prompt_len, logprobs, token_ids, spans,
    mask_on_sampled, version_runs, temperature_runs, token_rewards, finite_numbers, known_words,
    consent, documents, branch_numbers, preferences, hints,
)  # fmt: skip
