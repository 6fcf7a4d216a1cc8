"""The files that a session works on, what the agent does to them, and what becomes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock_jobs.simulator.code import LANGUAGES, Block, Language, SourceFile, write_file
from penstock_jobs.simulator.grammar import Dice

# Most sessions work in one language, with a little of another beside it.
_MIXES = tuple(
    tuple(LANGUAGES[i] for i in mix)
    for mix in ((0, 0, 0, 3), (1, 1, 1, 0), (2, 2, 3, 2), (0, 1, 3, 0))
)


@dataclass(slots=True, eq=False)
class Edit:
    """A change of the agent to one file; texts are of the file or of the region."""

    edit_id: str
    file: SourceFile
    block: int
    before: str
    after: str
    #: What the tool call carried: only the pieces that went and came.
    old_text: str
    new_text: str
    #: All blocks before the change; None when the change made the file.
    undo: list[Block] | None


@dataclass(slots=True)
class Workspace:
    dice: Dice
    languages: Sequence[Language]
    files: list[SourceFile]
    focus: SourceFile
    edits: dict[str, list[Edit]] = field(default_factory=dict)

    @classmethod
    def create(cls, dice: Dice) -> "Workspace":
        languages = dice.pick(_MIXES)
        first = _write(dice, languages)
        workspace = cls(dice, languages, [first], first)
        for _ in range(dice.between(1, 3)):
            workspace.files.append(workspace.elsewhere())
        return workspace

    def names(self) -> Mapping[str, Sequence[str]]:
        """What a conversation about the file in focus speaks of."""
        dice = self.dice
        digits = dice.hex(8 * 120)
        return {
            **self.focus.names,
            "path": [self.focus.path, *(file.path for file in self.files)],
            "file": [file.path.rpartition("/")[2] for file in self.files],
            "line": [str(dice.skewed(3, 900)) for _ in range(60)],
            "hex": [digits[at : at + 8] for at in range(0, len(digits), 8)],
        }

    def elsewhere(self) -> SourceFile:
        """A new file, at a path that no file of the session has or had."""
        taken = {file.path for file in self.files} | self.edits.keys()
        while (file := _write(self.dice, self.languages)).path in taken:
            pass
        return file

    def edit(self) -> Edit:
        """The agent changes a file, or adds one."""
        dice = self.dice
        self.focus = file = self.focus if dice.chance(0.6) else dice.pick(self.files)
        draw = dice.random()
        if draw < 0.1:
            edit = self._add_file()
        elif draw < 0.25:
            edit = self._add_block(file)
        else:
            edit = self._rework(file)
        self.edits.setdefault(edit.file.path, []).append(edit)
        return edit

    def drop(self, edit: Edit) -> None:
        """The edit was never applied: its tool call failed."""
        self.edits[edit.file.path].pop()
        self.revert(edit)

    def revert(self, edit: Edit) -> None:
        """The file is again as it was before the edit, later ones included."""
        if edit.undo is not None:
            edit.file.blocks = list(edit.undo)
        elif edit.file in self.files:
            self.files.remove(edit.file)
            self.focus = self.files[0]

    def touch(self, edit: Edit) -> None:
        """The user changes something inside of what the agent wrote."""
        # A revert in between may have taken the block away.
        block = min(edit.block, len(edit.file.blocks) - 1)
        edit.file.rework(self.dice, block, self.dice.between(1, 2))

    def _rework(self, file: SourceFile) -> Edit:
        dice = self.dice
        block = dice.between(0, len(file.blocks) - 1)
        undo = list(file.blocks)
        whole = len(undo) < 4 and dice.chance(0.3)
        before = file.text() if whole else file.region(block)
        old, new = file.rework(dice, block, dice.between(1, 5))
        after = file.text() if whole else file.region(block)
        return Edit(dice.hex(16), file, block, before, after, old, new, undo)

    def _add_block(self, file: SourceFile) -> Edit:
        dice = self.dice
        block = dice.between(0, len(file.blocks) - 1)
        undo = list(file.blocks)
        before = file.region(block)
        file.blocks.insert(block + 1, file.new_block(dice, dice.between(3, 9)))
        new = file.region(block + 1)
        return Edit(dice.hex(16), file, block + 1, before, f"{before}\n{new}", "", new, undo)

    def _add_file(self) -> Edit:
        self.focus = file = self.elsewhere()
        self.files.append(file)
        text = file.text()
        return Edit(self.dice.hex(16), file, 0, "", text, "", text, None)


def _write(dice: Dice, languages: Sequence[Language]) -> SourceFile:
    return write_file(dice, dice.pick(languages), dice.between(2, 3))
