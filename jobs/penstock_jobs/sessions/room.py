"""What sessions bring: reading, observation, the overview."""

from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Room

if TYPE_CHECKING:
    from penstock.doors.console.page import ConsolePage


def commands() -> Commands:
    from penstock_jobs.sessions import cli
    from penstock_jobs.sessions.observation.cli import observe

    return {"observe": observe, "sessions": cli.app, "rewards.show": cli.explain}


def endpoints() -> Endpoints:
    from penstock_jobs.sessions import endpoints, session_record
    from penstock_jobs.sessions.observation import observer

    return [*endpoints.ENDPOINTS, *session_record.ENDPOINTS, *observer.ENDPOINTS]


def pages() -> "list[ConsolePage[Any]]":
    from penstock_jobs.sessions import pages as sessions_pages
    from penstock_jobs.sessions.overview import pages

    return [*pages.PAGES, *sessions_pages.PAGES]


ROOM = Room(
    package="penstock_jobs.sessions",
    summaries={
        "observe": "Look at files that sessions edited, and tell what became of them.",
        "sessions": "Sessions, to be looked through and read.",
    },
    joined=("rewards.show",),
    commands=commands,
    endpoints=endpoints,
    pages=pages,
)
