"""The settings of the console."""

from dataclasses import dataclass

from penstock.core.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(RoomSettings):
    """See docs/reference/settings.md."""

    console_tokenizers: str = setting(
        "",
        "NAME=FILE pairs with commas: the tokenizer.json of what model calls name as tokenizer",
        "Set it so that pages of tokens show their texts; it needs penstock[tokenizers].",
    )
    console_figures_seconds: int = setting(
        60,
        "so long a page that adds up a whole lake is shown again before it is made anew",
        "Raise it on a large lake that many look at; 0 makes each page anew.",
        minimum=0,
    )
    oidc_issuer: str = setting(
        "",
        "address of the OpenID provider by which people sign in to the console",
        "Set it where people have accounts there: nobody then handles keys.",
        needs="oidc_client_id",
    )
    oidc_client_id: str = setting(
        "",
        "what the provider calls this console",
        "Set it with the issuer.",
        needs="oidc_groups",
    )
    oidc_client_secret_file: str = setting(
        "",
        "file with the secret that the provider gave for it",
        "Set it where the provider gave one; a public client has none.",
    )
    oidc_redirect_url: str = setting(
        "",
        "address of /sign-in/oidc of this console, as browsers reach it",
        "Set it behind a balancer; without it the address of the request counts.",
    )
    oidc_groups: str = setting(
        "",
        "GROUP=KEY pairs with commas: members may what the key of this id may; the first that fits",
        "Set it with the issuer; revoking the key signs its members out.",
    )
    oidc_groups_claim: str = setting(
        "groups",
        "claim of the provider's token that names a person's groups",
        "Change it where the provider calls it otherwise, such as roles.",
    )
