"""Plays policies that cut corners or pad, and compares what the default definition says of them
with honest work of equal or higher true worth. Exit 1 where one of them is worth more.

`--write` puts the tables into bench/pages/rewards.md, and what is foremost into docs/rewards.md."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.reward_hacks.comparison import (
    DEFAULT,
    HAND_HEAD,
    MARGIN,
    SHARES,
    SIMULATED_HEAD,
    Compared,
    compared_policies,
    compared_scripts,
    foremost,
    markdown,
    policy_rows,
    script_rows,
    with_section,
)
from bench.reward_hacks.scripts import hack_scripts, honest_scripts, score
from bench.reward_hacks.simulated import play
from penstock.backends.terminal.output import say, show_table
from penstock_jobs.rewards.definition import Definition, find_definition
from penstock_jobs.simulator.policy import HONEST

_ROOT = Path(__file__).parents[2]
#: With the foremost rows, and with all of them.
PAGE, STUDY = _ROOT / "docs" / "rewards.md", _ROOT / "bench" / "pages" / "rewards.md"
#: Sections of both.
BY_HAND, SIMULATED = "hacks by hand", "simulated hacks"
#: Of each policy, for the published table.
SESSIONS = 120


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.reward_hacks", description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="of each policy")
    parser.add_argument("--write", action="store_true", help="the tables into the pages")
    options = parser.parse_args()
    by_hand = scripted()
    say("excess over honest work, by hand: the worst of users who speak and who do not")
    show_table(list(HAND_HEAD), script_rows(by_hand))
    say(f"playing policies over {options.sessions} sessions each")
    policies = simulated(options.sessions)
    honest = [style.name for style in HONEST]
    rows = policy_rows(policies, honest)
    show_table(list(SIMULATED_HEAD), rows)
    if options.write:
        _write(STUDY, script_rows(by_hand), rows)
        _write(PAGE, script_rows(foremost(by_hand)), policy_rows(foremost(policies), honest))
    hacked = [row.name for row in (*by_hand, *policies) if not row.holds]
    tried = len(by_hand) + len(policies) - len(HONEST)
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


def compared_definitions() -> list[Definition]:
    path = Path(__file__).with_name(f"{SHARES}.toml")
    return [find_definition(DEFAULT), find_definition(str(path))]


def scripted() -> list[Compared]:
    definitions = compared_definitions()
    with TemporaryDirectory() as directory:
        scripts = [*honest_scripts(), *hack_scripts()]
        return compared_scripts(score(Path(directory) / "lake", scripts, definitions))


def simulated(sessions: int) -> list[Compared]:
    definitions = compared_definitions()
    with TemporaryDirectory() as directory:
        return compared_policies(play(Path(directory) / "lake", definitions, sessions))


if __name__ == "__main__":
    main()
