"""The labelled examples: enough, balanced, different from one another, and split for ever."""

from bench.judge_training import train_groups
from penstock_jobs.rewards.followups.judge import (
    LABELS,
    all_examples,
    fresh_examples,
    held_out_examples,
)


def test_about_a_quarter_of_each_label_is_held_out() -> None:
    first = [one for one in all_examples() if not one.fresh]
    for label in LABELS:
        mine = [one for one in first if one.label == label]
        assert 0.18 < sum(one.held_out for one in mine) / len(mine) < 0.32


def test_nothing_is_on_both_sides() -> None:
    train = {one.message.text for one in train_groups()[0]}
    held_out = {one.message.text for one in held_out_examples()}
    assert train.isdisjoint(held_out)
    assert {one.message.text for one in fresh_examples()} <= held_out
    assert len(train) + len(held_out) == len(all_examples())
