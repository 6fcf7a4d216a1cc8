"""The room of sessions: reading, observation, the overview."""

from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Room

if TYPE_CHECKING:
    from penstock.doors.console.page import ConsolePage


def commands() -> Commands:
    from penstock_jobs.sessions import cli

    return {"observe": cli.observe, "sessions": cli.app, "rewards.show": cli.explain}


def endpoints() -> Endpoints:
    from penstock_jobs.sessions import endpoints, reading
    from penstock_jobs.sessions.observation import observer

    return [*endpoints.ENDPOINTS, *reading.ENDPOINTS, *observer.ENDPOINTS]


def pages() -> "list[ConsolePage[Any]]":
    from penstock_jobs.sessions import overview, pages

    return [*overview.PAGES, *pages.PAGES]


ROOM = Room(
    package="penstock_jobs.sessions",
    summaries={
        "observe": "Observe files that sessions edited, to see what became of the edits.",
        "sessions": "List, read and export sessions.",
    },
    extra_commands=("rewards.show",),
    commands=commands,
    endpoints=endpoints,
    pages=pages,
)
