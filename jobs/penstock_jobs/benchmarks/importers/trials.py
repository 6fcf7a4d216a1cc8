"""The trials of an import, which become numbered attempts, and the problems found in them."""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.core.errors import InvalidInput
from penstock.core.settings import GIB, MIB
from penstock.registry.checkpoints.attempts import (
    Attempt,
    AttemptAudit,
    check_attempt,
    shortened,
    with_audit,
)
from penstock.registry.checkpoints.harness import Harness
from penstock_jobs.benchmarks.importers import documents

#: Texts that `documents.decode` puts for numbers that JSON does not have.
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_OTHER_FORM = "a file of another form was passed over"


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    #: The score to take, and the label whose trials are taken.
    metric: str | None = None
    only: str | None = None
    #: Take unfinished runs too. Missing results are then errors.
    unfinished: bool = False
    document_bytes_max: int = 512 * MIB
    unpacked_bytes_max: int = 64 * GIB
    attempts_max: int = 1_000_000


@dataclass
class ImportProblem:
    kind: str
    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ImportedTrial:
    task: str
    #: Its score, or an error.
    outcome: float | str
    #: The other fields of an Attempt.
    measures: Mapping[str, Any] = field(default_factory=dict)
    #: Two trials with one identity are copies, whatever their files.
    identity: Hashable
    #: Id by which a later import recognises it, whatever its number; may be empty.
    trial: str = ""
    where: str
    #: Such as the agent and the model.
    label: tuple[str, ...] = ()
    harness: Harness | None = None
    run: str = ""
    #: Its number in its run, if the format has one, and the planned number of attempts.
    index: int | None = None
    size: int = 0
    started: str = ""
    name: str = ""
    #: Kinds of problems to note if it is taken.
    notes: Sequence[str] = ()
    #: What its transcript told, if there is one.
    audit: AttemptAudit | None = None

    @property
    def result(self) -> tuple[str, float | str, Mapping[str, Any]]:
        return self.task, self.outcome, self.measures


class ImportProblems:
    """Problems of an import, by kind, with counts and first places."""

    def __init__(self, known: Iterable[ImportProblem] = ()) -> None:
        self.problems = {each.kind: replace(each, examples=[*each.examples]) for each in known}

    @property
    def sorted_problems(self) -> list[ImportProblem]:
        return sorted(self.problems.values(), key=lambda problem: problem.kind)

    def note(self, kind: str, where: object, count: int = 1) -> None:
        problem = self.problems.setdefault(kind, ImportProblem(kind))
        problem.count += count
        if len(problem.examples) < 5:
            problem.examples.append(shortened(where))


class TrialCollection(ImportProblems):
    """The trials of an import, each once."""

    ONLY_SUMMARY = "only the summary names it"
    DIFFERENT_RESULTS = "of two results that differ neither was taken"

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__()
        self.path, self.options = path, options
        self._trials: dict[Hashable, ImportedTrial] = {}
        #: Places of results, by numbered attempt.
        self.sources: dict[tuple[str, int], str] = {}
        #: The harness of all attempts, if they tell one.
        self.harness: Harness | None = None
        self._places: set[tuple[Hashable, Hashable, bool]] = set()

    def __iter__(self) -> Iterator[ImportedTrial]:
        return iter(self._trials.values())

    def decode(self, file: Path, kinds: Mapping[str, type[Struct]]) -> Struct | None:
        """Decode a document as the first kind whose key it has. Raises Unfit."""
        data = documents.read(file, self.options.document_bytes_max)
        keys = documents.decode(data, dict[str, Raw]).keys()
        for key, kind in kinds.items():
            if key in keys:
                return documents.decode(data, kind)
        self.note(_OTHER_FORM, file)
        return None

    def leave_out(self, kind: str, file: Path, error: Exception) -> None:
        """Note an unreadable file. Raises InvalidInput if it is the whole import."""
        if self.path.is_file():
            raise InvalidInput(what=f"The file {file}", why=str(error)) from error
        self.note(kind, f"{file}: {error}")

    def distinct(self, files: Iterable[Path], has_form: Callable[[Path], bool]) -> Iterator[Path]:
        """Skip copies, since the results have no ids, and files of another form in a folder."""
        digests: set[bytes] = set()
        for path in files:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            if digest in digests:
                self.note("a copy of another file was passed over", path)
            elif self.path.is_dir() and not has_form(path):
                self.note(_OTHER_FORM, path)
            else:
                yield path
            digests.add(digest)

    def metric(self, what: str, names: Collection[str]) -> str | None:
        """The metric of the options, or the only one there is. Raises InvalidInput."""
        name, known = self.options.metric, ", ".join(sorted(names))
        if name is not None and names and name not in names:
            raise InvalidInput(what=f"The {what} {name!r}", why=f"there are: {known}")
        if name is None and len(names) > 1:
            why = f"there are several: {known}; name one with --metric"
            raise InvalidInput(what=f"The {what}", why=why)
        return name if name is not None else next(iter(names), None)

    def refuse_unfinished(self, what: str, missing: str) -> None:
        if not self.options.unfinished:
            why = f"it has not ended: {missing} are missing; wait, or import it with --unfinished"
            raise InvalidInput(what=what, why=why)

    def add(self, trial: ImportedTrial, holder: Hashable = None, *, summary: bool = False) -> None:
        """Add a trial. Two different results of one trial are an error. A summary may repeat it."""
        place, other_place = ((trial.identity, holder, kind) for kind in (summary, not summary))
        repeated = other_place in self._places and place not in self._places
        self._places.add(place)
        known = self._trials.get(trial.identity)
        if known is None:
            if len(self._trials) == self.options.attempts_max:
                why = f"it has more than {self.options.attempts_max} attempts: import it in parts"
                raise InvalidInput(what="The import", why=why)
            self._trials[trial.identity] = trial
        elif (known.result, known.label) != (trial.result, trial.label):
            self._trials[trial.identity] = self.neither(known, trial)
        elif not repeated:
            self.note("a copy, counted once", trial.where)

    def add_missing(self, kind: str, task: str, identity: Hashable, **facts: Any) -> None:
        self.note(kind, facts["where"])
        self.add(ImportedTrial(task=task, outcome=self.ONLY_SUMMARY, identity=identity, **facts))

    def neither(self, known: ImportedTrial, other: ImportedTrial) -> ImportedTrial:
        """Make the error that replaces two different results of one trial."""
        self.note(self.DIFFERENT_RESULTS, f"{known.where}, {other.where}")
        return replace(known, outcome="two results of it differ", measures={}, notes=())

    def attempts(self) -> list[Attempt]:
        """The attempts, sorted by task and number. Raises InvalidInput for mixed labels."""
        trials = _of_one_label(list(self._trials.values()), self.options.only)
        harnesses = {trial.harness for trial in trials}
        self.harness = harnesses.pop() if len(harnesses) == 1 else None
        for trial in trials:
            for kind in trial.notes:
                self.note(kind, trial.where)
        attempts = filter(None, (self._attempt(*numbered) for numbered in _numbered(trials)))
        return sorted(attempts, key=lambda attempt: attempt.place)

    def _attempt(self, trial: ImportedTrial, number: int) -> Attempt | None:
        outcome = "error" if isinstance(trial.outcome, str) else "score"
        facts: dict[str, Any] = {outcome: trial.outcome}
        facts["trial"] = hashlib.sha256(trial.trial.encode()).hexdigest() if trial.trial else None
        for name, value in trial.measures.items():
            facts[name] = _measure(value, _NOT_WHOLE.get(name, int))
            if facts[name] is None:
                del facts[name]
                if value is not None:
                    kind = f"a {name} that nothing can have was left out"
                    self.note(kind, f"{trial.where}: {value!r}")
        attempt = Attempt(task=trial.task, attempt=number, **facts)
        try:
            check_attempt(attempt)
        except InvalidInput as error:
            self.note("an attempt that cannot be kept was left out", f"{trial.where}: {error}")
            return None
        self.sources[attempt.place] = trial.where
        return with_audit(attempt, trial.audit)


_NOT_WHOLE = {
    "cost_usd": float, "latency_s": float, "bits_per_byte": float, "edited": bool, "asked": bool
}  # fmt: skip


def _measure(value: Any, kind: type) -> Any:
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if not isinstance(value, (int, float)) or not 0 <= value < 2**63:  # NaN neither
        return None
    return kind(value) if kind is float or value == int(value) else None


def _of_one_label(trials: list[ImportedTrial], name: str | None) -> list[ImportedTrial]:
    """The trials of one label. A part of a label names it if no other label has that part."""
    texts = {trial.label: " ".join(trial.label) for trial in trials}
    if name is None:
        if len(texts) > 1:
            names = "; ".join(sorted(text or "(not named)" for text in texts.values()))
            why = f"they come from several: {names}; name one with --only"
            raise InvalidInput(what="These results", why=why)
        return trials
    fitting = {label for label, text in texts.items() if name in (*label, text)}
    if len(fitting) != 1:
        names = "; ".join(sorted(texts[label] or "(not named)" for label in fitting or texts))
        raise InvalidInput(what=f"--only {name!r}", why=f"it must name exactly one of: {names}")
    return [trial for trial in trials if trial.label in fitting]


def _numbered(trials: Iterable[ImportedTrial]) -> Iterator[tuple[ImportedTrial, int]]:
    """Number each task's attempts, run by run; within a run by the format, else by time."""
    by_task: dict[str, dict[str, list[ImportedTrial]]] = {}
    began: dict[str, str] = {}
    for trial in sorted(trials, key=lambda trial: (not trial.started, trial.started, trial.name)):
        by_task.setdefault(trial.task, {}).setdefault(trial.run, []).append(trial)
        if trial.started:
            began[trial.run] = min(trial.started, began.get(trial.run, trial.started))
    for runs in by_task.values():
        first = 0
        for run in sorted(runs, key=lambda name: (began.get(name, ""), name)):
            placed: dict[int, ImportedTrial] = {}
            without_place = []
            for trial in runs[run]:
                if trial.index is None or trial.index in placed:
                    without_place.append(trial)
                else:
                    placed[trial.index] = trial
            placed |= enumerate(without_place, max(placed, default=-1) + 1)
            for index, trial in placed.items():
                yield trial, first + index
            first += max(max(placed) + 1, *(trial.size for trial in runs[run]))


def reported_tokens(prompt: Any, completion: Any, notes: list[str]) -> dict[str, Any]:
    """The measures of tokens. Zero counts are dropped: harnesses put 0 for unknown, and no model
    answers without reading a token."""
    if not prompt and not completion:
        if prompt == 0 or completion == 0:
            notes.append("0 tokens read and written stand for tokens that nobody reported")
        return {}
    return {"prompt_tokens": prompt, "completion_tokens": completion}


def scored(value: Any) -> float | str:
    if isinstance(value, bool):
        return float(value)
    number = isinstance(value, (int, float))
    if value in _NO_NUMBERS or (number and not -inf < value < inf):
        return "its score is not a finite number"
    if not number:
        return f"its score cannot be read: {shortened(repr(value))}"
    if not 0 <= value <= 1:
        return f"its score is {shortened(value)}, not between 0 and 1"
    return float(value)
