"""The room of the simulator, the demo and the examples."""

from penstock.core.room import Room

ROOM = Room(
    package="penstock_jobs.simulator",
    summaries={
        "demo": "Watch the whole loop with a small transformer and simulated users, in six cycles.",
        "examples": "Copy the examples: sessions, recipes, policies, suites, agents, hooks.",
        "simulate": "Simulate sessions with known truth, and send their events.",
    },
    commands={
        "demo": "penstock_jobs.simulator.demo.cli:demo",
        "examples": "penstock_jobs.simulator.examples:examples",
        "simulate": "penstock_jobs.simulator.cli:simulate",
    },
)
