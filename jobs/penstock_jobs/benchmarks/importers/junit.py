"""Reports in JUnit's XML: a test is a task, its result in a report an attempt."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from penstock.registry.checkpoints.attempts import shortened
from penstock_jobs.benchmarks.importers import documents
from penstock_jobs.benchmarks.importers.documents import Unfit
from penstock_jobs.benchmarks.importers.trials import ImportedTrial, TrialCollection

NAME = "junit"

_CHUNK_BYTES = 64 * 1024
#: Remarks on failed runs before a last one that passed, and on runs after a failed first one.
_EARLIER = {"flakyFailure": "failure", "flakyError": "error"}
_FURTHER = {"rerunFailure", "rerunError"}
_VERDICTS = {"failure", "error", "skipped"}
_NOT_RUN = {"notrun", "disabled", "skipped", "suppressed"}


def recognises(path: Path) -> bool:
    return any(_is_report(file) for file in documents.files(path, suffix=".xml"))


def collect(trials: TrialCollection) -> None:
    for file in trials.distinct(documents.files(trials.path, suffix=".xml"), _is_report):
        limit, reader = trials.options.document_bytes_max, _XmlReader(trials.options.attempts_max)
        try:
            if file.stat().st_size > limit:
                raise Unfit(f"it is longer than {limit} bytes")
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    reader.feed(chunk)
                reader.feed(b"", last=True)
        except Unfit as error:
            trials.leave_out("a report that cannot be read was left out", file, error)
            continue
        for count, test in enumerate(reader.tests):
            trials.add(_trial(test, file, count))


def _is_report(file: Path) -> bool:
    reader = _XmlReader(tests_max=0)
    with suppress(OSError, Unfit), file.open("rb") as stream:
        reader.feed(stream.read(_CHUNK_BYTES))
    return reader.root in ("testsuites", "testsuite")


@dataclass
class _Test:
    suite: str
    attributes: dict[str, str]
    #: Kind and text of each remark.
    remarks: list[tuple[str, str]] = field(default_factory=list)


class _XmlReader:
    """Reads a report as a stream. It refuses document types and entities, which no report needs."""

    def __init__(self, tests_max: int) -> None:
        self.root: str | None = None
        self.tests: list[_Test] = []
        self._tests_max = tests_max
        self._suites: list[str] = []
        self._test: _Test | None = None
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.EntityDeclHandler = self._refuse
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end

    def feed(self, data: bytes, *, last: bool = False) -> None:
        try:
            self._parser.Parse(data, last)
        except expat.ExpatError as error:
            raise Unfit(f"it is not XML: {error}") from error

    def _refuse(self, *_declaration: object) -> None:
        raise Unfit("it declares a document type, which no report needs")

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        name = element.rpartition(":")[2]
        self.root = self.root or name
        if name == "testsuite":
            self._suites.append(attributes.get("name", ""))
        elif name == "testcase":
            self._test = _Test(self._suites[-1] if self._suites else "", attributes)
        elif self._test is not None and name in _VERDICTS | _FURTHER | _EARLIER.keys():
            text = attributes.get("message") or attributes.get("type") or ""
            self._test.remarks.append((name, text))

    def _end(self, element: str) -> None:
        name = element.rpartition(":")[2]
        if name == "testsuite" and self._suites:
            self._suites.pop()
        elif name == "testcase" and self._test is not None:
            if len(self.tests) == self._tests_max:
                raise Unfit("it holds more tests than one import takes: import it in parts")
            self.tests.append(self._test)
            self._test = None


def _trial(test: _Test, file: Path, count: int) -> ImportedTrial:
    group = test.attributes.get("classname") or test.suite
    name = test.attributes.get("name", "")
    task = shortened(f"{group}::{name}" if group else name)
    notes: list[str] = []
    measures: dict[str, float] = {}
    with suppress(KeyError, ValueError):
        measures["latency_s"] = float(test.attributes["time"].replace(",", ""))
    return ImportedTrial(
        task=task,
        outcome=_outcome(test, notes),
        measures=measures,
        identity=(str(file), count),
        where=f"{file.name}, {task}",
        run=str(file),
        name=f"{count:012}",
        notes=notes,
    )


def _outcome(test: _Test, notes: list[str]) -> float | str:
    texts = dict(reversed(test.remarks))
    earlier = next((name for name, _text in test.remarks if name in _EARLIER), None)
    if earlier is not None or not _FURTHER.isdisjoint(texts):
        notes.append("a test was run again: its first run counts")
    if earlier is not None:
        verdict, text = _EARLIER[earlier], texts[earlier]
    else:
        verdict = next((name for name in ("error", "failure", "skipped") if name in texts), "")
        text = texts.get(verdict, "")
    states = {test.attributes.get(name, "").lower() for name in ("status", "result")}
    if verdict == "error":
        return shortened(text) or "error"
    if verdict == "failure":
        return 0.0
    if verdict == "skipped" or not _NOT_RUN.isdisjoint(states):
        notes.append("a test that was skipped is an error")
        return shortened(f"skipped: {text}" if text else "skipped")
    return 1.0
