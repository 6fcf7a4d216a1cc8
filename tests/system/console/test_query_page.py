"""The page of queries in a real Chromium: run, see a refusal, follow the link, download."""

import io
from urllib.parse import quote

import pyarrow.parquet as pq

from tests.support.console_fixtures import (
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
)

BY_TYPE = "select type, count(*) as events from events group by all order by type"


def test_a_statement_is_run_linked_and_downloaded(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(console_service, "read")
    page.goto("/query")
    assert_accessible(page)
    page.get_by_label("Statement").fill(BY_TYPE)
    page.keyboard.press("Control+Enter")
    page.get_by_role("columnheader", name="events").wait_for()
    assert_accessible(page)
    rows = page.locator("tbody tr").all_inner_texts()
    assert any(row.startswith("user_message") for row in rows)
    assert page.locator("svg.chart").count() == 1
    page.get_by_role("link", name="Link to snap").click()
    page.wait_for_url("**as_of=*")
    assert page.locator("tbody tr").all_inner_texts() == rows
    with page.expect_download() as started:
        page.get_by_role("link", name="parquet").click()
    path = started.value.path()
    assert pq.read_table(io.BytesIO(path.read_bytes())).num_rows == len(rows)


def test_what_is_refused_says_why(console_service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(console_service, "read")
    answer = page.goto("/query?sql=" + quote("copy events to '/tmp/x'"))
    assert answer is not None
    assert answer.status == 400
    assert page.get_by_role("alert").inner_text()
    assert page.get_by_label("Statement").input_value() == "copy events to '/tmp/x'"
    assert_accessible(page)


def test_hostile_rows_are_text(console_service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(console_service, "read", width=390)
    sql = (
        'select \'<img src=x onerror="window.hacked = 1">\' as "<b>a</b>", text from user_messages'
    )
    page.goto("/query?sql=" + quote(sql))
    page.locator("tbody tr").first.wait_for()
    assert_not_hacked(page)
    assert page.locator("main th b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 390
