"""self_rework: how much of its own work the agent did again.

Measures: which share of an edit's text later edits of the same session replaced, before or after
the user had anything to say. It is neither survival nor the user's rejection, so edit_persistence
leaves it out; read the two together.

Formula, at a horizon, white space not counted: characters that the edit wrote and a later edit of
the session took away, and that nobody brought back / characters written. For an edit that only
took away: characters that later edits of the session brought back at its place / characters taken
away.

Range: 0, none, to 1, all: lower is better. Weight: as of edit_persistence.

pending, censored, invalid: as edit_persistence says, without `self_rework`.

To game it: make one large edit instead of several small ones, or leave a mistake as it is. It is
for watching, and for reading edit_persistence rightly; as a penalty it teaches not to correct.
"""

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.edit_scores import EditScore, ink_size, score_deletion, score_edits
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.texts.changes import CompareCost
from penstock_jobs.rewards.texts.survival import reworked_ink, survivors
from penstock_jobs.rewards.texts.trail import Sighting, TrackedEdit

NAME = "self_rework"


def self_rework(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """The rows of this reward: module docstring."""

    def score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
        if edit.deleted:
            return _deletion(edit, sighting, CompareCost(parameters.cells_max))
        if not sighting.reworked:
            return EditScore(0.0)
        alive = survivors(edit, sighting)
        return EditScore(reworked_ink(edit, sighting, alive) / edit.ink_size)

    return score_edits(NAME, bucket, parameters, score, ink_size)


def _deletion(edit: TrackedEdit, sighting: Sighting, cost: CompareCost) -> EditScore:
    return score_deletion(edit, sighting, cost, lambda _, own: EditScore(own / edit.ink_size))


REWARD = Reward(NAME, 2, self_rework, EditParameters)
