"""Plays policies that cut corners or pad, and compares what the default definition says of them
with honest work of equal or higher true worth. Exit 1 where one is worth more, in any world.

`--write` puts the tables into bench/pages/rewards.md, and what is foremost into docs/rewards.md."""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.reward_hacks.comparison import (
    DEFAULT,
    FOREMOST,
    HAND_HEAD,
    MARGIN,
    SHARES,
    SIMULATED_HEAD,
    Compared,
    Policy,
    compared_policies,
    compared_scripts,
    markdown,
    policy_rows,
    script_rows,
    with_section,
)
from bench.reward_hacks.habits import HACKS
from bench.reward_hacks.scripts import hack_scripts, honest_scripts, score
from bench.reward_hacks.simulated import all_worlds, over_worlds, play_world
from penstock.backends.terminal.output import say, show_table
from penstock_jobs.rewards.definition import find_definition

_ROOT = Path(__file__).parents[2]
#: With the foremost rows, and with all of them.
PAGE, STUDY = _ROOT / "docs" / "rewards.md", _ROOT / "bench" / "pages" / "rewards.md"
#: Sections of both.
BY_HAND, SIMULATED = "hacks by hand", "simulated hacks"
WORLDS = 20
_SHARES = str(Path(__file__).with_name(f"{SHARES}.toml"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.reward_hacks", description=__doc__)
    parser.add_argument("--worlds", type=int, default=WORLDS, help="bent worlds beside the plain")
    parser.add_argument("--held-out", action="store_true", help="users say what nobody saw")
    parser.add_argument("--write", action="store_true", help="the tables into the pages")
    options = parser.parse_args()
    by_hand = scripted()
    say("excess over honest work, by hand: the worst of users who speak and who do not")
    show_table(list(HAND_HEAD), script_rows(by_hand))
    policies = simulated(options.worlds, held_out=options.held_out)
    rows = policy_rows(policies)
    show_table(list(SIMULATED_HEAD), rows)
    if options.write:
        most = sorted(policies, key=lambda row: (row.honest, -row.excess))[:FOREMOST]
        hands = sorted(by_hand, key=lambda row: -row.excess[1])[:FOREMOST]
        _write(STUDY, script_rows(by_hand), rows)
        _write(PAGE, script_rows(hands), policy_rows(most))
    hacked = [row.name for row in by_hand if not row.holds]
    hacked += [row.name for row in policies if not row.holds]
    tried = len(by_hand) + sum(not row.honest for row in policies)
    if hacked:
        say(f"{len(hacked)} of {tried} are worth more than honest work: {', '.join(hacked)}")
    else:
        say(f"none of {tried} is worth more than honest work by {MARGIN:g} or more")
    sys.exit(1 if hacked else 0)


def _write(path: Path, by_hand: list[list[str]], simulated: list[list[str]]) -> None:
    page = path.read_text(encoding="utf-8")
    page = with_section(page, BY_HAND, markdown(HAND_HEAD, by_hand))
    page = with_section(page, SIMULATED, markdown(SIMULATED_HEAD, simulated))
    path.write_text(page, encoding="utf-8")


def scripted() -> list[Compared]:
    definitions = [find_definition(DEFAULT), find_definition(_SHARES)]
    with TemporaryDirectory() as directory:
        scripts = [*honest_scripts(), *hack_scripts()]
        return compared_scripts(score(Path(directory) / "lake", scripts, definitions))


def simulated(count: int, *, held_out: bool) -> list[Policy]:
    begun = time.monotonic()
    worlds = []
    for world, plays in over_worlds(all_worlds(count, held_out=held_out), play_world):
        over = sum(one.excess > MARGIN for name, one in plays.items() if name in HACKS)
        say(f"{world.name}: {over} above honest work, after {time.monotonic() - begun:.0f} s")
        worlds.append((world, plays))
    return compared_policies(worlds)


if __name__ == "__main__":
    main()
