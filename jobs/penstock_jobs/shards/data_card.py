"""The card of a data set on the Hugging Face Hub: a README.md whose front matter the Hub reads."""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import penstock
from penstock.core.errors import InvalidInput
from penstock.events.redaction.placeholders import PLACEHOLDER

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
