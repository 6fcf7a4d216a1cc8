"""A shard as a data set for the Hugging Face Hub: its conversations in Parquet, and a card.

The card is a README.md whose front matter the Hub reads.
"""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import penstock
from penstock.core.errors import InvalidInput, PenstockError
from penstock.events.redaction.placeholders import PLACEHOLDER
from penstock.shards.manifest import StoredShard
from penstock_jobs.shards.export import ExportReport, ShardSource, appearing_folder, export_shard

_TARGET = "messages-parquet"
_DATA = "data"


class ConsentWithdrawn(PenstockError):
    """{sessions} sessions of the shard {shard} must not be used any more: build it anew before you
    publish it."""


def publish_shard(
    shard: StoredShard, licence: str, out: Path, withdrawn: Collection[str]
) -> ExportReport:
    """Write a shard into a new folder. Raises InvalidInput, ConsentWithdrawn, and what
    `export_shard` raises."""
    check_license(licence)
    if withdrawn:
        raise ConsentWithdrawn(sessions=len(withdrawn), shard=shard.id)
    with appearing_folder(out) as folder:
        report = export_shard(shard, _TARGET, folder / _DATA)
        masked: Counter[str] = Counter()
        for rows in ShardSource(shard).all_tables(["messages"]):
            masked += count_placeholders("\n".join(rows["messages"].to_pylist()))
        card = _card(shard, licence, report, masked)
        (folder / CARD_NAME).write_text(card.text(), encoding="utf-8")
    return report


def _card(
    shard: StoredShard, licence: str, report: ExportReport, masked: Counter[str]
) -> "DataCard":
    manifest, counts = shard.manifest, shard.manifest.counts
    parts = {"default": f"{_DATA}/train-*.parquet"}
    if any(name.startswith("eval-") for name in report.files):
        parts["eval"] = f"{_DATA}/eval-*.parquet"
    card = DataCard(f"{manifest.name}: conversations of coding agents", licence, report.rows, parts)
    facts: Sequence[tuple[str, object]] = [
        ("shard", shard.id), ("recipe", manifest.recipe or "–"), ("rows", report.rows),
        ("sessions", counts.sessions), ("tokens", counts.tokens),
        ("rewards", ", ".join(f"{each.definition} {each.version}" for each in manifest.rewards)),
    ]  # fmt: skip
    card.body += [
        "Each row has `messages` in OpenAI's form and `tools`. A message with `weight` 0 was not"
        " trained.",
        table(("", ""), facts),
    ]
    reasons = sorted(counts.excluded.items()) + sorted(report.left_out.items())
    left_out = [table(("left out", "count"), reasons)] if reasons else []
    card.add("Consent", "Sessions whose users refused were left out as the shard was built.")
    card.body += left_out
    card.add("Redaction", *redaction_report(masked))
    return card


# The card


CARD_NAME = "README.md"
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
#: The Hub's size categories, which end at powers of ten.
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "n>10M")


@dataclass
class DataCard:
    title: str
    license: str
    #: Rows, lines or documents of the largest part.
    size: int
    #: The files of each part, by its name; the first is the one that the Hub shows.
    files: Mapping[str, str]
    tags: Sequence[str] = ()
    #: Paragraphs and tables, in order.
    body: list[str] = field(default_factory=list)

    def add(self, title: str, *paragraphs: str) -> None:
        self.body += [f"## {title}", *paragraphs]

    def text(self) -> str:
        configs = [
            f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {files!r}"
            for name, files in self.files.items()
        ]
        tags = [f"- {tag}" for tag in (*self.tags, "coding-agents", "penstock")]
        front = [
            f"license: {self.license}", "tags:", *tags, "size_categories:",
            f"- {_SIZES[bisect([10**n for n in range(3, 8)], self.size)]}", "configs:", *configs,
        ]  # fmt: skip
        made = f"Made by Penstock {penstock.__version__}."
        head = "\n".join(["---", *front, "---"])
        return "\n\n".join([head, f"# {self.title}", *self.body, made]) + "\n"


def check_license(name: str) -> str:
    """Check the form of the Hub's names of licences. Raises InvalidInput."""
    if not _LICENSE.fullmatch(name):
        why = "the Hub's names of licences look like cc-by-4.0, apache-2.0 or other"
        raise InvalidInput(what=f"--license {name}", why=why)
    return name


def count_placeholders(text: str) -> Counter[str]:
    """Count what redaction masked, by kind and type."""
    return Counter(found.rpartition(":")[0].strip("[") for found in PLACEHOLDER.findall(text))


def redaction_report(masked: Mapping[str, int]) -> list[str]:
    if not masked:
        return ["No placeholder of redaction is in it. Read it before you publish it."]
    told = "Secrets and personal data that redaction knew are placeholders: equal ones are equal."
    return [told, table(("kind", "placeholders"), sorted(masked.items()))]


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
