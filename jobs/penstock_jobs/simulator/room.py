"""The room of the simulator, the demo and the examples."""

from penstock.core.room import Room

ROOM = Room(
    package="penstock_jobs.simulator",
    summaries={
        "Start here": {
            "demo": "Watch the whole loop: a small transformer, simulated users, six cycles.",
            "examples": "Copy the examples: sessions, recipes, policies, suites, agents, hooks.",
        },
        "Connect agents": {
            "simulate": "Simulate sessions with known truth, and send their events."
        },
    },
    commands={
        "demo": "penstock_jobs.simulator.demo.cli:demo",
        "examples": "penstock_jobs.simulator.examples:examples",
        "simulate": "penstock_jobs.simulator.cli:simulate",
    },
)
