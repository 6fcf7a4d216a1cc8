"""The room of sessions: reading, observation, the overview."""

from penstock.core.room import Room, items

ROOM = Room(
    package="penstock_jobs.sessions",
    summaries={
        "Connect agents": {
            "observe": "Observe files that sessions edited, to see what became of the edits."
        },
        "Read and ask": {"sessions": "List, read and export sessions."},
    },
    commands={
        "observe": "penstock_jobs.sessions.cli:observe",
        "sessions": "penstock_jobs.sessions.cli:app",
        "rewards.show": "penstock_jobs.sessions.cli:explain",
    },
    endpoints=items(
        "penstock_jobs.sessions.endpoints:ENDPOINTS",
        "penstock_jobs.sessions.reading:ENDPOINTS",
        "penstock_jobs.sessions.observation.observer:ENDPOINTS",
    ),
    pages=items("penstock_jobs.sessions.overview:PAGES", "penstock_jobs.sessions.pages:PAGES"),
)
