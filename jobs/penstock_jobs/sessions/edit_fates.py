"""What became of the lines of edits, as rewards see it: by what was observed of the files later."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.texts.changes import CompareCost, TooExpensive
from penstock_jobs.rewards.texts.survival import LineFate, line_fates, written_lines
from penstock_jobs.rewards.texts.trail import Sighting, TrackedEdit

Fate = LineFate | Literal["unknown"]


@dataclass
class EditFate:
    """Of one edit the fates of the lines that it wrote, by their text, in order; as of so many
    seconds after it. `unseen` says why nobody knows."""

    turn: int
    horizon_s: int | None = None
    unseen: str | None = None
    lines: Mapping[str, list[LineFate]] = field(default_factory=dict)

    def of_lines(self, texts: Sequence[str]) -> list[Fate]:
        """The fates of these lines; of equal ones in order."""
        left = {text: list(fates) for text, fates in self.lines.items()}
        return [left[text].pop(0) if left.get(text) else "unknown" for text in texts]

    def counts(self) -> Counter[LineFate]:
        return Counter(fate for fates in self.lines.values() for fate in fates)


def edit_fates(bucket: Bucket, session: str, horizon_s: int | None = None) -> dict[str, EditFate]:
    """The edits of a session by the names that rewards give them, each at this horizon, else at the
    latest at which somebody looked. Right after an edit all is there: that says nothing."""
    parameters = EditParameters()
    fates: dict[str, EditFate] = {}
    for edit in bucket.trails(parameters).get(session, ()):
        fates[edit.target_id] = fate = EditFate(edit.turn, unseen=edit.problem)
        looks = zip(parameters.horizons_s, edit.sightings, strict=True)
        asked = [(at, look) for at, look in looks if at and horizon_s in (None, at)]
        seen = [(at, look) for at, look in asked if look.state == "scored"]
        if seen:
            fate.horizon_s, look = seen[-1]
            fate.lines = _lines(edit, look, parameters.cells_max)
        elif fate.unseen is None and asked:
            last = asked[-1][1]
            fate.unseen = last.reason or last.state
    return fates


def _lines(edit: TrackedEdit, look: Sighting, cells_max: int) -> dict[str, list[LineFate]]:
    written = written_lines(edit)
    lines: defaultdict[str, list[LineFate]] = defaultdict(list)
    try:
        if look.holders == (edit.made,):
            fates: list[LineFate] = ["surviving"] * len(written)
        else:
            fates = list(line_fates(edit, written, look, CompareCost(cells_max)))
    except TooExpensive:
        return {}
    for line, fate in sorted(zip(written, fates, strict=True), key=lambda pair: pair[0].at):
        lines[line.text].append(fate)
    return dict(lines)
