"""Where a stretch of lines was put in or taken out, when it could be any of several places.

A function that is put in between two others may as well begin with the last lines of the one before
it: both make the same text. People mean the stretch that begins where a block does.
"""

from collections.abc import Sequence

from penstock_jobs.rewards.texts.changes import Block

#: No stretch is moved over more lines than this.
_LINES_MAX = 50


def settled(kept: Sequence[Block], old: str, new: str) -> list[Block]:
    """The blocks, with each stretch of whole lines that came or went where it most likely did."""
    blocks = list(kept)
    for number in range(len(blocks) - 1):
        before, after = blocks[number], blocks[number + 1]
        i, j = before.i + before.n, before.j + before.n
        came, gone = after.j - j, after.i - i
        if came and not gone:
            shift = _shift(new, j, after.j, before.n, after.n)
        elif gone and not came:
            shift = _shift(old, i, after.i, before.n, after.n)
        else:
            continue
        blocks[number] = before._replace(n=before.n + shift)
        blocks[number + 1] = Block(after.i + shift, after.j + shift, after.n - shift)
    return [block for block in blocks if block.n]


def _shift(text: str, start: int, end: int, before: int, after: int) -> int:
    """By how many characters the stretch is moved; `before` and `after` it so many are kept."""
    if start and text[start - 1] != "\n":
        return 0
    places = [0]
    at, to = start, end
    while len(places) < _LINES_MAX:  # down: the first line goes over to the end
        line = text[at : text.find("\n", at) + 1]
        if not line or not text.startswith(line, to) or to + len(line) - end > after:
            break
        at, to = at + len(line), to + len(line)
        places.append(at - start)
    at, to = start, end
    while len(places) < 2 * _LINES_MAX:  # up: the last line goes over to the beginning
        line = text[text.rfind("\n", 0, to - 1) + 1 : to]
        if (
            not line.endswith("\n")
            or not text.endswith(line, 0, at)
            or start - at + len(line) > before
        ):
            break
        if at > len(line) and text[at - len(line) - 1] != "\n":
            break
        at, to = at - len(line), to - len(line)
        places.append(at - start)
    if len(places) == 1:
        return 0
    return min(places, key=lambda place: (*_beginning(text, start + place), -place))


def _beginning(text: str, at: int) -> tuple[int, bool]:
    """How unlikely a block begins here: by the indentation of its first line, and whether there is
    no blank line before it."""
    head = text[:at].rstrip(" \t")
    follows_blank = not head or head.endswith("\n\n")
    while at < len(text):
        stop = text.find("\n", at) + 1 or len(text)
        line = text[at:stop]
        if line.strip():
            return len(line) - len(line.lstrip()), not follows_blank
        follows_blank = True
        at = stop
    return 0, not follows_blank
