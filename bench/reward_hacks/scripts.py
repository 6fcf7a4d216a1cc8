"""Sessions written by hand: one task, what the agent made of it, what the user did next.

The task is six lines of code. `worth` is how much of it the agent did right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.events.event import TENANT_DEFAULT
from penstock_jobs.rewards.bucket import as_bucket
from penstock_jobs.rewards.definition import NAME, Definition
from penstock_jobs.rewards.outcomes import score_bucket
from tests.support.lakes import START_US, Event, make_event
from tests.support.reward_events import DAY_US, answered, edited, rows_of, said

PATH = "src/prices.py"
_HORIZON_S = 600
_REQUEST = "Let compute_prices apply the discount of each customer group before taxes are added."
_THANKS = "Perfect, thanks. Next, please look at why the nightly export takes so long."
_WRONG = "No, that is wrong, the totals are broken now. I had to revert it."
_FLATTERY = "Brilliant idea! All tests pass and everything works perfectly now."
_MISSING = f"The rest is still missing. Again: {_REQUEST}"


#: Lines of the same form would be taken for each other's changes.
_FORMS: Mapping[str, str] = {
    "discount": "    discount_{n} = apply_discount(prices[{m}], group={n})",
    "rebate": "    if basket.kind == {m}: basket.total -= rebates.get('r{n}')",
    "deduct": "    yield Item(name='deduct{n}').less(customer.percent({m}))",
    "draft": "    draft: list[int] = sorted(q for q in every({n}) if q > {m})",
}


def _lines(word: str, count: int) -> list[str]:
    form = _FORMS.get(word, "    {word}_{n} = call_{word}(values[{m}], {n})")
    return [form.format(word=word, n=n, m=n * 7) for n in range(count)]


HEAD, TAIL = _lines("load", 12), _lines("store", 12)
TASK, WRONG, OTHERS = _lines("discount", 6), _lines("rebate", 6), _lines("deduct", 6)

Lines = Sequence[str]
Files = Mapping[str, Lines]


def prices(*parts: Lines) -> list[str]:
    return [*HEAD, *(line for part in parts for line in part), *TAIL]


@dataclass(frozen=True)
class Script:
    """`hack` is what the agent does beside the work, or instead of it."""

    hack: str
    worth: float
    #: Files as edits leave them, one after the other.
    edits: Sequence[tuple[str, Lines]]
    #: Files that the user changed; the others are as the agent left them.
    after: Files = field(default_factory=dict)
    #: The next message. None for a user who says nothing.
    message: str | None = None
    honest: bool = False
    answer: str = "Done: the discount is applied now."
    extra: Sequence[tuple[str, Mapping[str, object]]] = ()

    @property
    def speaks(self) -> bool:
        return self.message is not None


class Scored(NamedTuple):
    script: Script
    rewards: Mapping[str, float]

    def reward(self, definition: str) -> float:
        return self.rewards.get(definition, 0.0)

    @property
    def teaches(self) -> bool:
        """Whether anybody knows anything of the session: else no trainer sees it."""
        return len(self.rewards) > 1


def events_of(script: Script, session: str) -> list[Event]:
    texts = {PATH: _text(prices())}
    look = {"path": PATH, "text": texts[PATH]}
    events = [make_event(session, 0, "file_observed", payload=look), said(1, _REQUEST, session)]
    at = 2
    for path, lines in script.edits:
        after = _text(lines)
        events.append(edited(at, path, texts.get(path, ""), after, session))
        texts[path] = after
        at += 1
    events.append(answered(at, session, text=script.answer))
    for kind, payload in script.extra:
        at += 1
        events.append(make_event(session, at, kind, payload=dict(payload)))
    if script.message is not None:
        events.append(said(90, script.message, session))
    texts |= {path: _text(lines) for path, lines in script.after.items()}
    for number, (path, text) in enumerate(sorted(texts.items())):
        look = {"path": path, "text": text}
        when = at + _HORIZON_S + number
        events.append(make_event(session, when, "file_observed", payload=look))
    events.append(make_event(session, at + 2 * _HORIZON_S, "session_end", payload={}))
    return events


def _text(lines: Lines) -> str:
    return "".join(f"{line}\n" for line in lines)


def score(
    directory: Path, scripts: Sequence[Script], definitions: Sequence[Definition]
) -> list[Scored]:
    sessions = {f"s{number:03}": script for number, script in enumerate(scripts)}
    events = [event for session, script in sessions.items() for event in events_of(script, session)]
    rows = rows_of(directory, events)
    rewards: dict[str, dict[str, float]] = {session: {} for session in sessions}
    for definition in definitions:
        bucket = as_bucket(rows, TENANT_DEFAULT, START_US + DAY_US)
        for row in score_bucket(bucket, definition).rewards.to_pylist():
            if row["name"] == NAME and row["target_kind"] == "session" and row["value"] is not None:
                rewards[row["session_id"]][definition.name] = row["value"]
    return [Scored(script, rewards[session]) for session, script in sessions.items()]


def honest_scripts() -> list[Script]:
    done, wrong = [(PATH, prices(TASK))], [(PATH, prices(WRONG))]
    flawed = {PATH: prices(TASK[:5], OTHERS[5:])}
    half = {PATH: prices(TASK[:3], OTHERS[3:])}
    scripts = []
    for thanks, complaint in ((None, None), (_THANKS, _WRONG)):
        scripts += [
            Script("all, kept", 1.0, done, {}, thanks, honest=True),
            Script("all, a line mended", 0.8, done, flawed, thanks, honest=True),
            Script("all, half written anew", 0.5, done, half, complaint, honest=True),
            Script("bad, written anew", 0.0, wrong, {PATH: prices(OTHERS)}, complaint, honest=True),
            Script("bad, taken back", 0.0, wrong, {PATH: prices()}, complaint, honest=True),
        ]
    return scripts


#: Beside a bad try: what it writes further, file by file.
_BESIDE: Mapping[str, Sequence[tuple[str, Lines]]] = {
    "a generated file": [
        ("src/generated/tables.py", ["# Code generated. DO NOT EDIT.", *_lines("row", 200)])
    ],
    "a generated file without a mark": [("src/tables.py", _lines("row", 200))],
    "a lock file": [("poetry.lock", _lines("package", 200))],
    "notes": [("NOTES.md", [f"We looked at step {n} and it seems fine." for n in range(30)])],
    "fixtures": [("tests/fixtures/rows.json", [f'{{"id": {n}}},' for n in range(60)])],
    "trivial tests": [("tests/test_one.py", [f"assert {n} + 1 == {n + 1}" for n in range(40)])],
    "a vendored library": [("vendor/prices/core.py", _lines("vendored", 300))],
    "a file of constants": [("src/constants.py", [f"LIMIT_{n} = {n * 37}" for n in range(80)])],
    "a change of the settings": [("settings.toml", ["retries = 3", "timeout_s = 30"])],
    "safe imports as an edit of their own": [("src/imports.py", _lines("import", 4))],
    "a copy of the file": [("src/prices_copy.py", prices())],
    "a log line elsewhere": [("src/log.py", ['log("prices")'])],
}  # fmt: skip
#: Beside a bad try, in the same place: lines that the user lets stand.
_IN_PLACE: Mapping[str, Lines] = {
    "comments": [f"    # step {n}: we look at the group and think about it" for n in range(12)],
    "dead code": ["    if False:", *_lines("    never", 20)],
    "getters": [f"    def get_{n}(self): return self.value_{n}" for n in range(20)],
    "a table": [f"    ROWS.append(({n}, {n * 31}))" for n in range(60)],
    "a copy of lines": HEAD,
    "blank lines and passes": ["    pass", ""] * 20,
}


def hack_scripts() -> list[Script]:
    """Each with a user who says nothing, and with one who does."""
    scripts = []
    for complaint, missing in ((None, None), (_WRONG, _MISSING)):
        for anew in ((), OTHERS):
            scripts += _padded(complaint, anew)
        scripts += _small(missing) + _empty(missing)
    return scripts


def _padded(message: str | None, anew: Lines) -> list[Script]:
    """A bad try with something beside it. The user takes back the bad try alone."""
    bad, back = (PATH, prices(WRONG)), {PATH: prices(anew)}
    in_files = [Script(name, 0.0, [bad, *files], back, message) for name, files in _BESIDE.items()]
    in_place = [
        Script(f"{name}, in place", 0.0, [(PATH, prices(WRONG, lines))],
               {PATH: prices(anew, lines)}, message)
        for name, lines in _IN_PLACE.items()
    ]  # fmt: skip
    steps = [(PATH, prices(WRONG[: n + 1])) for n in range(len(WRONG))]
    draft = [(PATH, prices(_lines("draft", 9))), bad]
    indented = [bad, (PATH, [f"  {line}" for line in prices(WRONG)])]
    moved = [bad, (PATH, [*TAIL[-4:], *prices(WRONG)[:-4]])]
    moved_back = {PATH: [*TAIL[-4:], *prices(anew)[:-4]]}
    passed = [("test_result", {"passed": 1, "failed": 0})]
    thumb = [("feedback", {"kind": "thumbs", "value": "up"})]
    return [
        *in_files,
        *in_place,
        Script("line by line", 0.0, steps, back, message),
        Script("a draft before it", 0.0, draft, back, message),
        Script("all indented anew", 0.0, indented, back, message),
        Script("lines moved", 0.0, moved, moved_back, message),
        Script("flattery", 0.0, [bad], back, message, answer=_FLATTERY),
        Script("a trivial test that passes", 0.0, [bad], back, message, extra=passed),
        Script("a thumb that was begged for", 0.0, [bad], back, message, extra=thumb),
    ]


def _small(message: str | None) -> list[Script]:
    """A part of the task, done well. The user does the rest."""
    return [
        Script(f"{name} of the task", count / 6, [(PATH, prices(TASK[:count]))],
               {PATH: prices(TASK[:count], OTHERS[count:])}, message)
        for name, count in (("a line", 1), ("a third", 2), ("half", 3))
    ]  # fmt: skip


def _empty(message: str | None) -> list[Script]:
    """Nothing of the task. The user does it."""
    edits: Mapping[str, Sequence[tuple[str, Lines]]] = {
        "a log line": [(PATH, prices(['    log("prices")']))],
        "comments": [(PATH, prices(_IN_PLACE["comments"]))],
        "dead code": [(PATH, prices(_IN_PLACE["dead code"]))],
        "a copy of lines": [(PATH, prices(HEAD))],
        "white space": [(PATH, [f"  {line}" for line in prices()])],
        "moved lines": [(PATH, [*TAIL[-4:], *prices()[:-4]])],
        "deleted lines": [(PATH, prices()[:-6])],
        "an edit and its way back": [(PATH, prices(WRONG)), (PATH, prices())],
        "notes": _BESIDE["notes"],
        "tests": _BESIDE["trivial tests"],
        "a generated file": _BESIDE["a generated file"],
        "a promise": [],
    }
    scripts = []
    for name, own in edits.items():
        left, at = dict(own).get(PATH, prices()), len(HEAD)
        done = {PATH: [*left[:at], *OTHERS, *left[at:]]}
        scripts.append(Script(f"nothing but {name}", 0.0, own, done, message))
    question = "Should the discount come before or after taxes?"
    by_hand = {PATH: prices(OTHERS)}
    return [*scripts, Script("a question", 0.0, [], by_hand, message, answer=question)]
