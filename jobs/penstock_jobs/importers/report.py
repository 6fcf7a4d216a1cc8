"""The report of an import: what was imported, and what was skipped, by kind with an example."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_EXAMPLE_CHARS_MAX = 200
#: Kinds of skipped items per format. Further kinds are counted together.
_KINDS_MAX = 200
_OTHERS = "other kinds"


class SourceUnfit(Exception):
    """Raised for a source, or a document in it, that cannot be read, with the reason."""


@dataclass
class LeftOutKind:
    """The number of skipped items of one kind, with an example."""

    count: int
    example: str


class Notes:
    """Notes of an importer about a source, beside its events."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.skipped: dict[str, LeftOutKind] = {}
        #: Why the end of the source is not imported yet. It is then read again, changed or not.
        self.held: str | None = None

    def skip(self, kind: str, example: object = "", count: int = 1) -> None:
        """Note skipped items; importers skip nothing silently.

        `kind` says what is skipped and why, the same for all items of the kind."""
        if kind not in self.skipped and len(self.skipped) >= _KINDS_MAX:
            kind = _OTHERS
        known = self.skipped.get(kind)
        if known is not None:
            known.count += count
            return
        shown = example if isinstance(example, str) else str(example)
        example = f"{self.where}: {shown[:_EXAMPLE_CHARS_MAX]}" if shown else self.where
        self.skipped[kind] = LeftOutKind(count, example)

    def objects(self, what: str, values: Iterable[object]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number values from 0, and skip those that are not objects."""
        for at, value in enumerate(values):
            if isinstance(value, dict):
                yield at, value
            else:
                self.skip(f"{what} that is not an object", str(at + 1))

    def hold(self, why: str) -> None:
        """Leave the end of the source for a later import: somebody may still be writing it."""
        self.held = why


_NAMES = {
    "user_message": "user messages",
    "model_call": "model calls",
    "tool_result": "tool results",
    "edit": "edits",
    "file_observed": "observations of files",
    "vcs_commit": "commits",
}
_TOKENS = ("prompt", "completion", "cached")
#: Tokens of a whole run, if its model calls have none.
_RUN_USAGE = "x_run_usage"


@dataclass
class SessionTally:
    """Counts of imported items. Sessions are kept as hashes, so 100,000 of them fit."""

    counts: dict[str, int] = field(default_factory=dict)
    sessions: set[int] = field(default_factory=set)

    def add(self, session_id: str, kind: str, payload: dict[str, Any]) -> None:
        self.sessions.add(hash(session_id))
        self._count(kind, 1)
        if kind == "model_call":
            self._count("tool_calls", len(payload.get("tool_calls") or ()))
            self._count_tokens(payload.get("usage") or {})
        elif kind == _RUN_USAGE:
            self._count_tokens(payload)

    def _count_tokens(self, usage: dict[str, Any]) -> None:
        for name in _TOKENS:
            self._count(f"{name}_tokens", usage.get(name) or 0)

    def _count(self, name: str, count: int) -> None:
        if count:
            self.counts[name] = self.counts.get(name, 0) + count

    def document(self) -> dict[str, int]:
        return {"sessions": len(self.sessions)} | self.counts

    def sentence(self) -> str:
        counts = self.counts
        parts = [f"{len(self.sessions)} sessions"]
        parts += [f"{counts[kind]} {name}" for kind, name in _NAMES.items() if kind in counts]
        if "tool_calls" in counts:
            parts.append(f"{counts['tool_calls']} tool calls")
        tokens = [
            f"{counts[f'{name}_tokens']:,} {name}" for name in _TOKENS if f"{name}_tokens" in counts
        ]
        if tokens:
            parts.append(f"tokens: {', '.join(tokens)}")
        return ", ".join(parts)


@dataclass
class FormatReport:
    sources: int = 0
    #: Bytes read from files; of grown logs, only the appended ones.
    read_bytes: int = 0
    unchanged: int = 0
    #: Sources whose ends are left for a later import.
    growing: int = 0
    taken: SessionTally = field(default_factory=SessionTally)
    skipped: dict[str, LeftOutKind] = field(default_factory=dict)
    #: Sources that gave events, and those that gave none, by reason. Together they are `sources`.
    taken_sources: int = 0
    skipped_sources: dict[str, LeftOutKind] = field(default_factory=dict)

    def add_skipped(self, notes: Notes) -> None:
        for kind, items in notes.skipped.items():
            known = self.skipped.setdefault(kind, LeftOutKind(0, items.example))
            known.count += items.count

    def end_source(self, notes: Notes, *, gave_events: bool, problem: str | None) -> None:
        if gave_events:
            self.taken_sources += 1
            return
        most = max(notes.skipped, key=lambda kind: notes.skipped[kind].count, default=None)
        why = problem or notes.held or (f"it only has: {most}" if most else "it has no message")
        self.skipped_sources.setdefault(why, LeftOutKind(0, notes.where)).count += 1


@dataclass
class SessionImportReport:
    formats: dict[str, FormatReport] = field(default_factory=dict)
    #: Files that no importer recognises, by suffix.
    unknown: dict[str, LeftOutKind] = field(default_factory=dict)
    #: Sources that could not be read, and why.
    unfit: list[tuple[str, str]] = field(default_factory=list)
    #: Names of the formats that there are importers for.
    known: Sequence[str] = ()

    def of(self, name: str) -> FormatReport:
        return self.formats.setdefault(name, FormatReport())

    def totals(self) -> int:
        return sum(sum(each.taken.counts.values()) for each in self.formats.values())

    def document(self) -> dict[str, Any]:
        formats = {
            name: asdict(report) | {"taken": report.taken.document()}
            for name, report in self.formats.items()
        }
        unfit = [{"path": path, "why": why} for path, why in self.unfit]
        unknown = {suffix: asdict(items) for suffix, items in self.unknown.items()}
        document = {"formats": formats, "unfit": unfit, "unknown": unknown}
        # File names may not be UTF-8.
        mended: dict[str, Any] = _as_unicode(document)
        return mended

    def lines(self) -> Iterable[str]:
        for name, report in sorted(self.formats.items()):
            unchanged = f", {report.unchanged} unchanged" if report.unchanged else ""
            if report.sources or report.unchanged:
                size = f" ({report.read_bytes / 1e6:,.1f} MB)" if report.read_bytes else ""
                yield f"{name}: {report.sources} sources read{size}{unchanged}"
            for why, items in sorted(report.skipped_sources.items()):
                yield f"  nothing in {items.count}: {why}, such as {items.example}"
            if report.taken.counts:
                yield f"{'  taken' if report.sources else name}: {report.taken.sentence()}"
            if report.growing:
                yield (
                    f"  {report.growing} may still grow: a later import takes their last message, "
                    "once they have been unchanged for a while"
                )
            for kind, items in sorted(report.skipped.items()):
                yield f"  skipped: {items.count} × {kind}, such as {items.example}"
        for shown, why in self.unfit:
            yield f"left out: {shown}: {why}"
        for suffix, items in sorted(self.unknown.items()):
            yield f"unknown format: {items.count} × {suffix}, such as {items.example}"
        if self.unknown:
            yield f"known formats: {', '.join(self.known)}"


def _as_unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_unicode(name): _as_unicode(item) for name, item in value.items()}
    return [_as_unicode(item) for item in value] if isinstance(value, list) else value
