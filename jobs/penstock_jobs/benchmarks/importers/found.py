"""What an importer finds: attempts with their numbers, and what else is to be said."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from penstock.checkpoints.attempt import Attempt, check_attempt
from penstock.errors import InvalidInput

#: Of each kind of problem so many examples are told.
_EXAMPLES_MAX = 5
_TEXT_CHARS_MAX = 500

#: As `documents.decode` leaves what is no JSON.
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")

ONLY_SUMMARY = "only the summary names it"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the person said, and the limits of reading."""

    #: Which of several scores counts.
    metric: str | None = None
    #: Whose results, where there are those of several.
    only: str | None = None
    #: A run that has not ended may be read; what is missing in it is an error.
    unfinished: bool = False
    document_bytes_max: int
    unpacked_bytes_max: int
    attempts_max: int


class Problems:
    """What was found and needs to be told, by kind, with how often and where."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: defaultdict[str, list[str]] = defaultdict(list)

    def note(self, kind: str, where: str, count: int = 1) -> None:
        self.counts[kind] += count
        if len(self.examples[kind]) < _EXAMPLES_MAX:
            self.examples[kind].append(short(where))


@dataclass(frozen=True)
class Found:
    """Attempts by task and number, no two of the same number."""

    attempts: list[Attempt]
    problems: Problems


@dataclass(frozen=True, kw_only=True)
class Trial:
    """An attempt that has no number yet. `result.attempt` means nothing."""

    result: Attempt
    #: The same trial again, wherever it lies, is a copy.
    identity: Hashable
    where: str
    #: Whose it is: the agent and the model, say.
    label: tuple[str, ...] = ()
    #: Attempts are numbered run by run, by the time at which runs began.
    run: str = ""
    #: Its place in its run, where the format has one, and how many its run should have.
    index: int | None = None
    size: int = 0
    #: Else by time and name.
    started: str = ""
    name: str = ""
    #: What is to be told of it, if it is taken.
    notes: tuple[str, ...] = ()


@dataclass
class Gathering:
    """Trials of one import, each once."""

    asked: Asked
    problems: Problems = field(default_factory=Problems)
    _trials: dict[Hashable, Trial] = field(default_factory=dict)
    _seen: set[tuple[Hashable, Hashable, bool]] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._trials)

    @property
    def tasks(self) -> set[str]:
        return {one.result.task for one in self._trials.values()}

    @property
    def labels(self) -> set[tuple[str, ...]]:
        return {one.label for one in self._trials.values()}

    def has(self, identity: Hashable) -> bool:
        return identity in self._trials

    def note(self, kind: str, where: str, count: int = 1) -> None:
        self.problems.note(kind, where, count)

    def add(self, trial: Trial, holder: Hashable = None, *, summary: bool = False) -> None:
        """Take a trial. Of two that differ neither counts. That a run's summary repeats what the
        run holds is no news. Raises InvalidInput."""
        seen, other = ((trial.identity, holder, kind) for kind in (summary, not summary))
        repeated = other in self._seen and seen not in self._seen
        self._seen.add(seen)
        known = self._trials.get(trial.identity)
        if known is None:
            if len(self._trials) == self.asked.attempts_max:
                why = f"it holds more than {self.asked.attempts_max} attempts: import it in parts"
                raise InvalidInput(what="What was named", why=why)
            self._trials[trial.identity] = trial
        elif (known.result, known.label) != (trial.result, trial.label):
            where = f"{known.where}, {trial.where}"
            self.note("of two results that differ neither was taken", where)
            error = "two results of it differ"
            result = Attempt(task=known.result.task, attempt=0, error=error)
            self._trials[trial.identity] = replace(known, result=result, notes=())
        elif not repeated:
            self.note("a copy, counted once", trial.where)

    def finish(self) -> Found:
        """Raises InvalidInput where the results of several are mixed."""
        mine = _of_one(list(self._trials.values()), self.asked.only)
        for one in mine:
            for kind in one.notes:
                self.note(kind, one.where)
        numbered = [self._fit(one, trial.where) for one, trial in _numbered(mine)]
        attempts = [one for one in numbered if one is not None]
        return Found(sorted(attempts, key=lambda one: (one.task, one.attempt)), self.problems)

    def _fit(self, result: Attempt, where: str) -> Attempt | None:
        for name, kind in _MEASURES.items():
            value = getattr(result, name)
            if value is None:
                continue
            fitting = _measure(value, kind)
            if fitting is None:
                self.note(f"a {name} that nothing can have was left out", f"{where}: {value!r}")
            measured: Any = 0 if name == "retries" and fitting is None else fitting
            result = replace(result, **{name: measured})
        try:
            check_attempt(result)
        except InvalidInput as error:
            self.note("an attempt that cannot be kept was left out", f"{where}: {error}")
            return None
        return result


_MEASURES = {
    one.name: {"cost_usd": float, "latency_s": float, "edited": bool, "asked": bool}.get(
        one.name, int
    )
    for one in fields(Attempt)
    if one.name not in ("task", "attempt", "score", "error")
}


def _measure(value: Any, kind: type) -> Any:
    """The value as that kind, None where it is not of it."""
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if not isinstance(value, (int, float)) or not 0 <= value < 2**63:  # NaN neither
        return None
    return kind(value) if kind is float or value == int(value) else None


def distinct(files: Iterable[Path], gathering: Gathering) -> Iterator[Path]:
    """Each file once, whatever it is called: where results have no ids, copies show so alone."""
    seen: set[bytes] = set()
    for path in files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        if digest in seen:
            gathering.note("a copy of another file was passed over", str(path))
        else:
            yield path
        seen.add(digest)


def choose(what: str, option: str, names: Collection[str], asked: str | None) -> str | None:
    """The one that was asked for, else the only one; None where there is none. Raises
    InvalidInput where it would have to be guessed."""
    if asked is not None:
        if names and asked not in names:
            there = ", ".join(sorted(names))
            raise InvalidInput(what=f"The {what} {asked!r}", why=f"there are: {there}")
        return asked
    if len(names) > 1:
        why = f"there are several: {', '.join(sorted(names))}; name one with {option}"
        raise InvalidInput(what=f"The {what}", why=why)
    return next(iter(names), None)


def _of_one(trials: list[Trial], asked: str | None) -> list[Trial]:
    """Those of one label; any part of it that no other has names it too."""
    labels = {one.label for one in trials}
    shown = {label: " ".join(label) for label in labels}
    named = {label for label in labels if asked is not None and asked in (*label, shown[label])}
    if asked is not None and len(named) == 1:
        return [one for one in trials if one.label in named]
    if asked is not None:
        named = named or labels
        names = "; ".join(sorted(shown[label] or "(not named)" for label in named))
        raise InvalidInput(what=f"--only {asked!r}", why=f"it names none, or several, of: {names}")
    if len(labels) > 1:
        names = "; ".join(sorted(text or "(not named)" for text in shown.values()))
        why = f"there are those of several: {names}; name one with --only"
        raise InvalidInput(what="A mixture of results", why=why)
    return trials


def _numbered(trials: Iterable[Trial]) -> list[tuple[Attempt, Trial]]:
    """Numbers within a task: run after run, the earliest first; within a run by the number that
    the format gave, else by time and name."""
    by_task: dict[str, defaultdict[str, list[Trial]]] = {}
    began: dict[str, str] = {}
    for one in trials:
        by_task.setdefault(one.result.task, defaultdict(list))[one.run].append(one)
        if one.started:
            began[one.run] = min(one.started, began.get(one.run, one.started))
    done: list[tuple[Attempt, Trial]] = []
    for runs in by_task.values():
        first = 0
        for run in sorted(runs, key=lambda name: (began.get(name, ""), name)):
            placed = _placed(runs[run])
            done += [(replace(one.result, attempt=first + at), one) for at, one in placed.items()]
            first += max(max(placed) + 1, *(one.size for one in runs[run]))
    return done


def _placed(trials: list[Trial]) -> dict[int, Trial]:
    placed: dict[int, Trial] = {}
    without = []
    for one in sorted(trials, key=lambda one: (one.started == "", one.started, one.name)):
        if one.index is None or one.index in placed:
            without.append(one)
        else:
            placed[one.index] = one
    first = max(placed, default=-1) + 1
    return placed | {first + at: one for at, one in enumerate(without)}


def short(text: object) -> str:
    """On one line, and not endless."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= _TEXT_CHARS_MAX else line[: _TEXT_CHARS_MAX - 1] + "…"


def scored(value: Any) -> tuple[float | None, str | None]:
    """A score from 0 to 1, or why it is none."""
    if isinstance(value, bool):
        return float(value), None
    if value in _NO_NUMBERS:
        return None, "its score is no finite number"
    if not isinstance(value, (int, float)):
        return None, f"its score cannot be read: {short(repr(value))}"
    if not -inf < value < inf:
        return None, "its score is no finite number"
    if not 0 <= value <= 1:
        return None, f"its score is {short(value)}, and scores lie between 0 and 1"
    return float(value), None
