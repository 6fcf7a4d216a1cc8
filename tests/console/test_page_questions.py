"""What pages are asked with, and the figures that they take from the process."""

import pytest

from penstock.console.page import all_pages
from penstock.metrics import Metrics
from penstock_jobs.sessions.calls import SessionsQuestion
from penstock_jobs.sessions.pages import list_fields


def test_no_two_pages_have_one_address() -> None:
    places = [(page.method, page.path) for page in all_pages()]
    assert len(places) == len(set(places))
    shortcuts = [page.shortcut for page in all_pages() if page.shortcut]
    assert len(shortcuts) == len(set(shortcuts))


def test_a_list_is_named_by_its_fields_alone() -> None:
    asked = SessionsQuestion(project="web", worth_min=0.0, cursor="x", limit=5)
    assert list_fields(asked) == {"project": "web", "worth_min": 0.0}


def test_a_quantile_is_the_end_of_its_bucket() -> None:
    metrics = Metrics()
    assert metrics.quantile("queryable_seconds", 0.5) is None
    for seconds in (0.04, 0.2, 0.4, 4.0):
        metrics.observe("queryable_seconds", seconds)
    assert metrics.quantile("queryable_seconds", 0.5) == 0.25
    assert metrics.quantile("queryable_seconds", 0.99) == 5.0
    metrics.observe("queryable_seconds", 1e6)
    assert metrics.quantile("queryable_seconds", 1.0) is None
    with pytest.raises(TypeError):
        metrics.quantile("events_accepted_total", 0.5)
