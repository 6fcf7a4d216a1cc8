"""What pages are asked with."""

from penstock.doors.console.page import all_pages
from penstock_jobs.sessions.pages import list_fields
from penstock_jobs.sessions.session_page import SessionsRequest


def test_no_two_pages_have_one_address() -> None:
    places = [(page.method, page.path) for page in all_pages()]
    assert len(places) == len(set(places))
    shortcuts = [page.shortcut for page in all_pages() if page.shortcut]
    assert len(shortcuts) == len(set(shortcuts))


def test_a_list_is_named_by_its_fields_alone() -> None:
    asked = SessionsRequest(project="web", worth_min=0.0, cursor="x", limit=5)
    assert list_fields(asked) == {"project": "web", "worth_min": 0.0}
