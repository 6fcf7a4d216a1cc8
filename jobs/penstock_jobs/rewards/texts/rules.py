"""By which rules a session's texts are read, for each version of the rewards of edits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TextRules:
    """Each field is a behaviour that version 3 of the rewards of edits brought."""

    #: Paths that differ in spelling alone (`./a.py`, `/srv/shop/a.py`) are one file.
    path_spellings: bool = True
    #: A byte order mark is no change.
    byte_order_marks: bool = True
    #: An edit that shows a file of which most stands still tells what others changed.
    changed_files: bool = True
    #: A region that stands in the whole file as it was is there and nowhere else.
    placed_regions: bool = True
    #: Lines that others copied are the author's too: who deletes the original has moved them.
    copies: bool = True
    #: Lines that may have been put in at several places were put in where a block begins.
    settled_lines: bool = True
    #: What the agent moves from one file to another is not written anew.
    moves_of_others: bool = True
    #: Text that others comment out, or put where it never runs, is gone.
    disabled_code: bool = True
    #: A line that the edit made from others' text alone, by shortening or joining, is its line.
    reshaped_lines: bool = True
    #: An edit weighs by what the session's agent left of it.
    weight_left: bool = True


#: Version 2 of the rewards of edits, as in the definition `default-1`.
SECOND_RULES = TextRules(
    path_spellings=False,
    byte_order_marks=False,
    changed_files=False,
    placed_regions=False,
    copies=False,
    settled_lines=False,
    moves_of_others=False,
    disabled_code=False,
    reshaped_lines=False,
    weight_left=False,
)
