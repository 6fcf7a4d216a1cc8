"""Reports in JUnit's XML: a test is a task, and what a report says of it an attempt."""

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from penstock.checkpoints.attempts import Attempt
from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit
from penstock_jobs.benchmarks.importers.trials import (
    ImportedTrial,
    ReadOptions,
    ReadResults,
    TrialCollection,
    distinct,
    short,
)

NAME = "junit"

_CHUNK_BYTES = 64 * 1024
#: Of a test that was run again, the runs before the last; of one that never passed, those after
#: the first.
_EARLIER = {"flakyFailure": "failure", "flakyError": "error"}
_FURTHER = {"rerunFailure", "rerunError"}
_VERDICTS = {"failure", "error", "skipped"}
_NOT_RUN = {"notrun", "disabled", "skipped", "suppressed"}


def recognises(path: Path) -> bool:
    return any(_is_report(file) for file in documents.files(path, suffix=".xml"))


def read(path: Path, options: ReadOptions) -> ReadResults:
    """Raises InvalidInput."""
    trials = TrialCollection(options)
    for file in distinct(documents.files(path, suffix=".xml"), trials):
        if path.is_dir() and not _is_report(file):
            trials.note("a file of another form was passed over", str(file))
            continue
        try:
            tests = list(_tests(file, options))
        except Unfit as error:
            kind = "a report that cannot be read was left out"
            trials.leave_out(kind, file, error, alone=path.is_file())
            continue
        for count, test in enumerate(tests):
            trials.add(_trial(test, file, count))
    return trials.finish()


def _is_report(file: Path) -> bool:
    reader = _XmlReader(attempts_max=0)
    try:
        with file.open("rb") as stream:
            reader.feed(stream.read(_CHUNK_BYTES), last=False)
    except (OSError, Unfit):
        pass
    return reader.root in ("testsuites", "testsuite")


def _tests(file: Path, options: ReadOptions) -> Iterator["_Test"]:
    if file.stat().st_size > options.document_bytes_max:
        raise Unfit(f"it is longer than {options.document_bytes_max} bytes")
    reader = _XmlReader(options.attempts_max)
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            reader.feed(chunk, last=False)
            yield from reader.taken()
        reader.feed(b"", last=True)
        yield from reader.taken()


class _Test:
    def __init__(self, suite: str, facts: dict[str, str]) -> None:
        self.suite = suite
        self.facts = facts
        #: What the report says of it: the kind, and the text.
        self.remarks: list[tuple[str, str]] = []


class _XmlReader:
    """Reads as a stream. Refuses a document type, and so entities: no report needs them."""

    def __init__(self, attempts_max: int) -> None:
        self.root: str | None = None
        self._left = attempts_max
        self._suites: list[str] = []
        self._test: _Test | None = None
        self._done: list[_Test] = []
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.EntityDeclHandler = self._refuse
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end

    def feed(self, data: bytes, *, last: bool) -> None:
        """Raises Unfit."""
        try:
            self._parser.Parse(data, last)
        except expat.ExpatError as error:
            raise Unfit(f"it is no XML: {error}") from error

    def taken(self) -> list[_Test]:
        done, self._done = self._done, []
        return done

    def _refuse(self, *_facts: object) -> None:
        raise Unfit("it declares a document type, which no report needs")

    def _start(self, element: str, facts: dict[str, str]) -> None:
        name = element.rpartition(":")[2]
        self.root = self.root or name
        if name == "testsuite":
            self._suites.append(facts.get("name", ""))
        elif name == "testcase":
            self._test = _Test(self._suites[-1] if self._suites else "", facts)
        elif self._test is not None and name in _VERDICTS | _FURTHER | _EARLIER.keys():
            self._test.remarks.append((name, facts.get("message") or facts.get("type") or ""))

    def _end(self, element: str) -> None:
        name = element.rpartition(":")[2]
        if name == "testsuite" and self._suites:
            self._suites.pop()
        elif name == "testcase" and self._test is not None:
            if self._left == 0:
                raise Unfit("it holds more tests than one import takes: import it in parts")
            self._left -= 1
            self._done.append(self._test)
            self._test = None


def _trial(test: _Test, file: Path, count: int) -> ImportedTrial:
    group = test.facts.get("classname") or test.suite
    name = test.facts.get("name", "")
    task = short(f"{group}::{name}" if group else name)
    where = f"{file.name}, {task}"
    notes: list[str] = []
    score, error = _score(test, notes)
    result = Attempt(
        task=task, attempt=0, score=score, error=error, latency_s=_seconds(test.facts.get("time"))
    )
    return ImportedTrial(
        result=result,
        identity=(str(file), count),
        where=where,
        run=str(file),
        name=f"{count:012}",
        notes=tuple(notes),
    )


def _score(test: _Test, notes: list[str]) -> tuple[float | None, str | None]:
    texts = dict(reversed(test.remarks))
    earlier = next((name for name, _text in test.remarks if name in _EARLIER), None)
    if earlier is not None or not _FURTHER.isdisjoint(texts):
        notes.append("a test was run again: its first run counts")
    if earlier is not None:
        verdict, text = _EARLIER[earlier], texts[earlier]
    else:
        verdict = next((name for name in ("error", "failure", "skipped") if name in texts), "")
        text = texts.get(verdict, "")
    status = test.facts.get("status", "").lower(), test.facts.get("result", "").lower()
    if verdict == "error":
        return None, short(text) or "error"
    if verdict == "failure":
        return 0.0, None
    if verdict == "skipped" or not _NOT_RUN.isdisjoint(status):
        notes.append("a test that was skipped is an error")
        return None, short(f"skipped: {text}" if text else "skipped")
    return 1.0, None


def _seconds(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", "")) if text else None
    except ValueError:
        return None
