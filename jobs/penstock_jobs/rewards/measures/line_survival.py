"""line_survival: how many of the lines that the agent wrote are still its own.

Measures: what one checks by hand with `git blame -w -M -C`: whose line is it now. A line is the
edit's when the edit wrote at least one character of it. It survives while it is there as the edit
left it, white space aside, at whatever place and in whatever file, and still holds text of the
edit.

Formula, at a horizon: surviving lines / (lines written − lines that later edits of the same
session changed).

Range: 0 to 1. Weight: lines written to the power of `weight_exponent`.

pending, censored, invalid: as edit_persistence says. `self_rework` where the agent changed all of
the lines itself; `nothing_written` also where the edit only took away: blame shows no deletions.

To game it: write many short lines that nobody has a reason to touch; compare with
edit_persistence, which counts characters.
"""

from functools import cache

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.edit_scores import EditScore, score_edits
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.texts.survival import surviving_lines, written_lines
from penstock_jobs.rewards.texts.trail import Sighting, TrackedEdit

NAME = "line_survival"


def line_survival(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    lines_of = cache(written_lines)

    def size(edit: TrackedEdit) -> int:
        return len(lines_of(edit))

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        lines = lines_of(edit)
        if not lines:
            return EditScore(None, "nothing_written")
        alive, reworked = surviving_lines(edit, lines, sighting)
        if len(lines) == reworked:
            return EditScore(None, "self_rework")
        return EditScore(alive / (len(lines) - reworked))

    return score_edits(NAME, bucket, parameters, score, size)


REWARD = Reward(NAME, 2, line_survival, EditParameters)
