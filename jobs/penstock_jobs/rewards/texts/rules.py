"""By which rules a session's texts are read, for each version of the rewards of edits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TextRules:
    """Each field is a behaviour that a version of the rewards brought; versions before it have it
    off."""

    #: Version 3: paths that differ in spelling alone (`./a.py`, `/work/shop/a.py`) are one file.
    path_spellings: bool = True


#: Version 2 of the rewards of edits, as in the definition `default-1`.
SECOND_RULES = TextRules(path_spellings=False)
