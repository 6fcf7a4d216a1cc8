"""The settings of what is sent over HTTP."""

from dataclasses import dataclass

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class HttpSettings(RoomSettings):
    """See docs/settings.md."""

    egress_networks: str = setting(
        "",
        "networks off the internet whose addresses tenants may have dialled, with commas",
        "Set it, as 10.1.2.0/24, when webhooks of tenants are in a network of your own.",
    )
