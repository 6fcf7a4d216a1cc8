"""What a package of yours can add to Penstock: a reward, an importer and an exporter."""

from collections.abc import Iterator
from typing import ClassVar

from penstock_jobs.importers import fields
from penstock_jobs.importers.importer import ImportedEvent, Importer, SessionEvents
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.rewards.measures.turns import Turn, TurnScore, turn_reward
from penstock_jobs.shards.export import Exporter, ExportOutput, ShardSource


def apologises(turn: Turn) -> TurnScore:
    """1 where the agent's last answer of a turn says sorry, else 0."""
    return TurnScore(float("sorry" in (turn["final_text"] or "").lower()))


APOLOGISES = turn_reward(apologises)


class Scribe(Importer):
    """Scribe: a JSON object a line, in `~/.scribe/SESSION.jsonl`."""

    name: ClassVar = "scribe"
    homes: ClassVar = ("~/.scribe",)

    def recognises(self, candidate: Candidate) -> bool:
        return candidate.ends(".jsonl") and any(
            "scribe_version" in row for row in candidate.first_rows
        )

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        session = SessionEvents(source.real.stem, self.name)
        for number, row in source.rows(notes):
            kind, key = fields.text(row, "kind"), fields.text(row, "id")
            when, said = fields.text(row, "time"), fields.text(row, "text")
            if kind != "prompt" or key is None or when is None or said is None:
                notes.skip(f"row of the kind {kind}", f"line {number}")
                continue
            seq = session.number(number)
            yield session.event("user_message", when, key, {"text": said}, seq)


SCRIBE = Scribe()


def write_names(source: ShardSource, output: ExportOutput) -> None:
    """A line a sample: the session that it came from."""
    for part in source.manifest.files:
        for table in source.tables(part, ["session_id"]):
            for name in table["session_id"].to_pylist():
                output.line("sessions.txt", name.encode())
                output.rows += 1


NAMES = Exporter("session-names", 1, "anything that reads lines", write_names)
