"""The errors of the console."""

from penstock.errors import PenstockError


class SignInNeeded(PenstockError, http_status=401):
    """Nobody is signed in here, or the session has ended. Sign in at /sign-in with a key."""


class RequestForged(PenstockError, http_status=403):
    """The form was not sent from this console: {why}. Nothing was done. Open the page again, and
    send its form from there."""


class SignInLinkUsed(PenstockError, http_status=401):
    """This link was used already, or is too old. Start the service again for another, or sign in
    with a key: penstock keys create."""


class ProviderUnusable(PenstockError, exit_status=3, http_status=502):
    """The OpenID provider cannot be used: {why}. Nobody was signed in. Try again, or sign in with a
    key; PENSTOCK_OIDC_ISSUER names the provider."""


class SignInRefused(PenstockError, http_status=403):
    """The sign-in by the OpenID provider is refused: {why}. Nobody was signed in."""
