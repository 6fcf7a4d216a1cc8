"""four_gram_range: how like what the agent wrote the same stretches still are, as published.

Measures: what editors that stay attached report. It is here for comparison with what a team knows;
edit_persistence is the measure to train on, and says what this one misses.

Formula, over the stretches that the edit wrote, carried through later changes; text put at their
edges joins them:

    Σ length(written) · sim4(now, written) / Σ length(written)

sim4 is the share of character 4-grams that two texts have in common. 1 where nothing was written.
Lengths are in UTF-16 code units; white space counts, and moved text is gone.

Range: 0 to 1. Weight: characters written to the power of `weight_exponent`.

pending, censored, invalid: as edit_persistence says, without `self_rework`: the published form
does not ask who changes the text. The text of a file that was deleted or renamed is empty.

To game it: as edit_persistence; and edits that only take away are always 1, with no weight.
"""

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.edit_scores import EditScore, score_edits, units_written
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.texts import similarity
from penstock_jobs.rewards.texts.trail import Sighting, TrackedEdit, ranges_now

NAME = "four_gram_range"


def four_gram_range(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_edits(NAME, bucket, parameters, _score, units_written)


def _score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
    if edit.is_as_made(sighting):
        return EditScore(1.0)
    now = ranges_now(edit, sighting)
    texts = [(one.after, text) for one, text in zip(edit.ranges, now, strict=True)]
    return EditScore(similarity.four_gram_range(texts))


REWARD = Reward(NAME, 2, four_gram_range, EditParameters)
