"""The room of sessions: reading, observation, the overview."""

from penstock.core.room import Room, items

ROOM = Room(
    package="penstock_jobs.sessions",
    summaries={
        "Connect agents": {
            "observe": "Observe files that sessions edited, to see what became of the edits."
        },
        "Read and ask": {
            "sessions": "List, read and export sessions.",
            "survival": "Show what stands of what agents wrote after a day, a week and a month.",
        },
    },
    commands={
        "observe": "penstock_jobs.sessions.cli:observe",
        "sessions": "penstock_jobs.sessions.cli:app",
        "survival": "penstock_jobs.sessions.survival.cli:survival",
        "rewards.show": "penstock_jobs.sessions.cli:explain",
    },
    endpoints=items(
        "penstock_jobs.sessions.endpoints:ENDPOINTS",
        "penstock_jobs.sessions.reading:ENDPOINTS",
        "penstock_jobs.sessions.observer:ENDPOINTS",
        "penstock_jobs.sessions.survival.page:ENDPOINTS",
    ),
    pages=items(
        "penstock_jobs.sessions.pages:PAGES",
        "penstock_jobs.sessions.overview:PAGES",
        "penstock_jobs.sessions.survival.page:PAGES",
    ),
)
