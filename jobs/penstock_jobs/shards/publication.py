"""A shard as a data set for the Hugging Face Hub: its conversations in Parquet, and a card."""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from penstock.core.errors import PenstockError
from penstock.shards.manifest import StoredShard
from penstock_jobs.shards.data_card import (
    CARD_NAME,
    DataCard,
    check_license,
    count_placeholders,
    redaction_report,
    table,
)
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


def _card(shard: StoredShard, licence: str, report: ExportReport, masked: Counter[str]) -> DataCard:
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
