"""four_gram_presence: how much of what the agent wrote occurs anywhere in the file, as published.

Measures: what editors report that know only the written pieces and the file as it is now. It is
here for comparison with what a team knows. Boilerplate keeps deleted edits alive in it.

Formula, over the written pieces: Σ max(1, length − 3) · presence / Σ max(1, length − 3), where
presence is the share of the piece's character 4-grams, by position, that occur anywhere in the
file; a shorter piece is in it or is not. An edit that wrote nothing is measured by the similarity
sim4 of the whole file, now and right after the edit. A deleted file is 0. Lengths are in UTF-16
code units; white space counts.

Range: 0 to 1. Weight: characters written to the power of `weight_exponent`.

pending, censored, invalid: as edit_persistence says, without `self_rework`: the published form
does not ask who changes the text. `unobserved` also where nothing was written and the file was not
known as a whole when the edit was made.

To game it: write what is in the file anyway.
"""

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.edit_scores import EditScore, score_edits, units_written
from penstock_jobs.rewards.reward import Reward
from penstock_jobs.rewards.texts import similarity
from penstock_jobs.rewards.texts.trail import Sighting, TrackedEdit

NAME = "four_gram_presence"


def four_gram_presence(bucket: Bucket, parameters: EditParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    return score_edits(NAME, bucket, parameters, _score, units_written)


def _score(edit: TrackedEdit, sighting: Sighting) -> EditScore:
    if edit.is_as_made(sighting):
        return EditScore(1.0)
    now = sighting.home.text if sighting.home else ""
    chunks = [one.after for one in edit.ranges if one.after]
    if chunks:
        return EditScore(similarity.four_gram_presence(chunks, now))
    if edit.made is None or not (edit.made.whole or now == edit.made.text):
        return EditScore(None, "unobserved")
    return EditScore(similarity.sim4(now, edit.made.text))


REWARD = Reward(NAME, 2, four_gram_presence, EditParameters)
