"""The room of shard building and consent."""

from typing import TYPE_CHECKING, Any

from penstock.core.room import Commands, Endpoints, Parts, Room

if TYPE_CHECKING:
    from penstock.doors.console.page import ConsolePage


def commands() -> Commands:
    from penstock_jobs.shards import cli
    from penstock_jobs.shards.cli import consent_app

    return {"shards": cli.app, "consent": consent_app}


def endpoints() -> Endpoints:
    from penstock_jobs.shards import consents, endpoints

    return [*endpoints.ENDPOINTS, *consents.ENDPOINTS]


def pages() -> "list[ConsolePage[Any]]":
    from penstock_jobs.shards import pages

    return [*pages.PAGES]


def erasure() -> Parts:
    from penstock_jobs.shards.consents import BUILDS, PART

    return {"shards": PART, "shard_builds": BUILDS}


def proof() -> Parts:
    from penstock_jobs.shards.registration import show_withdrawn

    return {"consent_withdrawn": show_withdrawn}


ROOM = Room(
    package="penstock_jobs.shards",
    summaries={
        "shards": "Training shards, built from queries.",
        "consent": "Whether data of users, projects and sessions may be trained on.",
    },
    commands=commands,
    endpoints=endpoints,
    pages=pages,
    erasure=erasure,
    proof=proof,
)
