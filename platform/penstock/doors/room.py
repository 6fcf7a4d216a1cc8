"""The room of the doors: the server, the console and the proxy."""

from penstock.core.room import Room, items

ROOM = Room(
    package="penstock.doors",
    summaries={
        "Start here": {"serve": "Take events in and answer queries, until SIGTERM or Ctrl-C."},
        "Connect agents": {
            "record": "Proxy a model's server and record the calls that pass, until SIGTERM."
        },
        "Operate": {"config": "Show every setting, its value and its origin."},
    },
    commands={
        "serve": "penstock.doors.server.cli:serve",
        "record": "penstock.doors.proxy.cli:record",
        "config": "penstock.doors.server.cli:config",
    },
    tables=items("penstock.doors.console.sign_in"),
    settings=items(
        "penstock.doors.settings:ServerSettings", "penstock.doors.settings:ConsoleSettings"
    ),
    pages=items(
        "penstock.doors.console.release_pages:PAGES", "penstock.doors.console.service_pages:PAGES"
    ),
)
