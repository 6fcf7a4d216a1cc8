"""Forms of other sites are refused, whatever the browser says of them."""

import pytest

from penstock.doors.console.console import own_path
from penstock.doors.console.sign_in import RequestForged, form_proof, require_own_form

COOKIE = "cookie"
PROOF = form_proof(COOKIE)
OWN = {"host": "127.0.0.1:8787"}


@pytest.mark.parametrize(
    "headers",
    [
        OWN,
        OWN | {"sec-fetch-site": "same-origin", "origin": "null"},
        OWN | {"origin": "http://127.0.0.1:8787"},
        OWN | {"origin": "https://127.0.0.1:8787"},  # something in front speaks TLS
    ],
)
def test_a_form_of_the_console_is_accepted(headers: dict[str, str]) -> None:
    require_own_form(headers, COOKIE, PROOF)


@pytest.mark.parametrize(
    ("headers", "cookie", "proof"),
    [
        (OWN | {"sec-fetch-site": "cross-site"}, COOKIE, PROOF),
        (OWN | {"sec-fetch-site": "same-site"}, COOKIE, PROOF),
        (OWN | {"sec-fetch-site": "none"}, COOKIE, PROOF),
        (OWN | {"origin": "http://evil.example"}, COOKIE, PROOF),
        (OWN | {"origin": "http://127.0.0.1:8788"}, COOKIE, PROOF),
        (OWN, None, PROOF),
        (OWN, "", form_proof("")),
        (OWN, COOKIE, ""),
        (OWN, COOKIE, form_proof("of another session")),
        (OWN, COOKIE, COOKIE),
    ],
)
def test_other_forms_are_refused(headers: dict[str, str], cookie: str | None, proof: str) -> None:
    with pytest.raises(RequestForged):
        require_own_form(headers, cookie, proof)


def test_one_goes_on_to_a_page_of_the_console_alone() -> None:
    assert own_path("/sessions?since=24h") == "/sessions?since=24h"
    for named in ("//evil.example/", "/\\evil.example", "https://evil.example",
                  "javascript:alert(1)", "/a\r\nSet-Cookie: x", "/é", ""):  # fmt: skip
        assert own_path(named) == "/"
