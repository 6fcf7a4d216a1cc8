"""What users did next, as numbers: rewards over buckets of sessions.

A definition names measures; a run computes them for the sessions that changed or matured and stores
rows and outcomes in the lake. `texts` follows whose text survived, `followups` what users wrote
next. A new reward is a function in a module of `measures`.
"""

from typing import Literal

OutcomeKind = Literal["scored", "negative_by_rule", "censored", "excluded", "pending"]
