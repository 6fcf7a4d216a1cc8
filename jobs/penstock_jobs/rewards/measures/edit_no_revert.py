"""edit_no_revert: whether the text went back to what it was before the edit.

Measures: reverting, as it is published. It stays 1 when the user changes the agent's text to
something new, and falls only where the text becomes more like the text before.

Formula, for each stretch that the edit replaced, carried through later changes; text put at its
edges joins it:

    1 − max(sim4(now, before) − sim4(after, before), 0) / (1 − sim4(after, before))

The mean over the stretches, weighted by the length of the text that each replaced. 1 where
sim4(after, before) is 1; pure insertions never count as reverted, and an edit that replaced
nothing is 1. sim4 is the share of character 4-grams that two texts have in common; lengths are in
UTF-16 code units, white space included.

Range: 0, all is as it was, to 1. Weight: characters replaced to the power of `weight_exponent`; so
an edit that replaced nothing weighs nothing.

pending, censored, invalid: as edit_persistence says, without `self_rework`: the published form
does not ask who changes the text. The text of a file that was deleted or renamed is empty.

To game it: insert, and never replace; or replace by text that is like the old one.
"""

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.edit_scores import EditScore, score_edits
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.texts.similarity import code_units, no_revert_range
from penstock_jobs.rewards.texts.trail import Sighting, TrackedEdit, ranges_now

NAME = "edit_no_revert"


def edit_no_revert(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_edits(NAME, bucket, parameters, _score, _size)


def _size(edit: TrackedEdit) -> int:
    return sum(len(code_units(one.before)) for one in edit.ranges)


def _score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
    if edit.is_as_made(sighting):
        return EditScore(1.0)
    now = ranges_now(edit, sighting)
    texts = [(one.before, one.after, text) for one, text in zip(edit.ranges, now, strict=True)]
    return EditScore(no_revert_range(texts))


REWARD = Reward(NAME, 2, edit_no_revert, EditParameters)
