"""The eight labels of a follow-up.

| label | the user |
|---|---|
| moves_on | accepts, praises, commits, or goes to the next thing |
| refines | wishes something more or different, without saying that what was done is wrong |
| corrects | says that the agent did something else than was asked, and what it should be |
| reports_failure | shows or tells that it does not work: a stack trace, a failing test, a bug |
| reverts | wants the agent's work undone, or says that they undid it |
| complains | is displeased with the agent, with nothing that it could act upon; sarcasm too |
| asks | wants to know something about the work |
| abandons | stops: no longer needed, given up, or done by hand |

A message that does two things has the label of the one that says most about the work before it:
praise and then a correction is corrects, a question that is a reproach is complains, and a new
task that tells of a failure elsewhere is moves_on.
"""

from typing import Literal, get_args

Label = Literal[
    "moves_on",
    "refines",
    "corrects",
    "reports_failure",
    "reverts",
    "complains",
    "asks",
    "abandons",
]
LABELS: tuple[Label, ...] = get_args(Label)

#: The labels that say that the agent's work was not what the user wanted. A user who stops may
#: have got what they wanted, or may not: abandons is not among them.
DISSATISFIED: frozenset[Label] = frozenset({"corrects", "reports_failure", "reverts", "complains"})
