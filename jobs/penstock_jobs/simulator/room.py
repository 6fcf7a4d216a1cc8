"""The room of the simulator, the demo and the examples."""

from penstock.core.room import Commands, Room


def commands() -> Commands:
    from penstock_jobs.simulator.cli import simulate
    from penstock_jobs.simulator.demo.cli import demo
    from penstock_jobs.simulator.examples import examples

    return {"demo": demo, "examples": examples, "simulate": simulate}


ROOM = Room(
    package="penstock_jobs.simulator",
    summaries={
        "demo": "Watch the whole loop with a small transformer and simulated users, in six cycles.",
        "examples": "Copy the examples: sessions, recipes, policies, suites, agents, hooks.",
        "simulate": "Simulate sessions with known truth, and send their events.",
    },
    commands=commands,
)
