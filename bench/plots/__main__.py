"""Draws all plots of the documentation, where they belong or in the folder that is named."""

import sys
from pathlib import Path

from bench.plots.edits import (
    edit_no_revert_plot,
    edit_persistence_plot,
    four_grams_plot,
    line_survival_plot,
    self_rework_plot,
    weights_plot,
    work_left_plot,
)
from bench.plots.sessions import combine_plot
from bench.plots.turns import (
    counts_plot,
    dissatisfied_follow_up_plot,
    length_penalty_plot,
    reasoning_in_comments_plot,
)

FOLDER = Path(__file__).parents[2] / "docs" / "plots"
#: By the name of the file.
PLOTS = {
    "combine": combine_plot,
    "dissatisfied_follow_up": dissatisfied_follow_up_plot,
    "edit_no_revert": edit_no_revert_plot,
    "edit_persistence": edit_persistence_plot,
    "four_grams": four_grams_plot,
    "length_penalty": length_penalty_plot,
    "line_survival": line_survival_plot,
    "reasoning_in_comments": reasoning_in_comments_plot,
    "self_rework": self_rework_plot,
    "turns": counts_plot,
    "weights": weights_plot,
    "work_left": work_left_plot,
}


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PLOTS.items():
        draw(folder / f"{name}.svg")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
