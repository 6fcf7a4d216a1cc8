"""What users did next, as numbers: rewards over buckets of sessions."""

from typing import Literal

OutcomeKind = Literal["scored", "negative_by_rule", "censored", "excluded", "pending"]
