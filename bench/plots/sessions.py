"""How rewards make up the reward of a session."""

from pathlib import Path

from bench.plots.drawing import label, legend_beside, panels
from penstock_jobs.rewards.definition import combine, parse_definition
from penstock_jobs.rewards.rows import Standing

_FIXED = 0.5


def combine_plot(path: Path) -> None:
    values = [step / 10 - 1 for step in range(31)]
    with panels(path) as [axes]:
        for how, clip in (("mean", None), ("mean", (-0.25, 0.25)), ("sum", None), ("sum", (-1, 1))):
            definition = parse_definition(_definition(how, clip), "the plot")
            worth = []
            for value in values:
                found = {
                    "edit_persistence": Standing("scored", value),
                    "explicit_feedback": Standing("scored", -_FIXED),
                }
                worth.append(combine(definition, found).value or 0.0)
            words = f"{how}, clipped to {list(clip)}" if clip else f"{how}"
            axes.plot(values, worth, label=words)
        label(
            axes,
            "a reward of weight 2, clipped to [0, 1]",
            "reward of the session",
            f"beside another of weight 1 that is −{_FIXED:g}",
        )
        legend_beside(axes)


def _definition(how: str, clip: tuple[float, float] | None) -> str:
    bounds = f"clip = [{float(clip[0])}, {float(clip[1])}]" if clip else ""
    return f"""
        name = "plot"
        combine = "{how}"
        {bounds}
        [[reward]]
        name = "edit_persistence"
        weight = 2.0
        clip = [0.0, 1.0]
        [[reward]]
        name = "explicit_feedback"
        weight = 1.0
    """
