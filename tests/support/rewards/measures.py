"""All six measures of edits, and short ways to ask them."""

from collections.abc import Callable

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.measures.edits import (
    edit_no_revert,
    edit_persistence,
    four_gram_presence,
    four_gram_range,
    line_survival,
    self_rework,
)
from tests.support.rewards.stories import Story, bucket, found

Measure = Callable[[Bucket, EditParameters], pa.Table]

MEASURES: dict[str, Measure] = {
    "edit_no_revert": edit_no_revert,
    "edit_persistence": edit_persistence,
    "four_gram_presence": four_gram_presence,
    "four_gram_range": four_gram_range,
    "line_survival": line_survival,
    "self_rework": self_rework,
}
PARAMETERS = EditParameters()


def value(name: str, story: Story, edit: str = "e-1", horizon_s: int = 30) -> float:
    """The value of a scored edit."""
    row = found(MEASURES[name](bucket(story), PARAMETERS), edit, horizon_s)
    assert row["state"] == "scored", row
    return float(row["value"])


def state(name: str, story: Story, edit: str = "e-1", horizon_s: int = 30) -> tuple[str, str]:
    """The state and reason of an edit that has no value."""
    row = found(MEASURES[name](bucket(story), PARAMETERS), edit, horizon_s)
    assert row["value"] is None, row
    return row["state"], row["reason"]
