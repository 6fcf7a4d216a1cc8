"""The frame in a real Chromium: signing in, the two schemes, keys, phones, what axe finds."""

from tests.support.console_fixtures import ConsoleService, SignIn, assert_accessible


def test_the_overview_is_accessible_in_both_schemes_and_fits_a_phone(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    for scheme, width in (("light", 1440), ("dark", 390)):
        page = sign_in(console_service, "read", scheme=scheme, width=width)
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_same_number_is_the_same_everywhere(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(console_service, "read")
    figures = page.get_by_role("region", name="Figures")
    sessions = int(figures.locator(".stat dd").first.inner_text())
    counts = figures.locator(".outcomes td.num:nth-child(2)").all_inner_texts()
    assert sum(map(int, counts)) == sessions
    link = figures.locator(".outcomes a").first
    shown = int(link.inner_text())
    link.click()
    page.wait_for_url("**/sessions?*outcome=*")
    assert page.locator("table.sessions tbody a.opening").count() == min(shown, 50)


def test_the_overview_shows_worth_kept_code_and_dissatisfaction(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(console_service, "read")
    rates = page.get_by_role("region", name="Rates")
    for title in ("Worth", "Code kept after 10 min", "Users who came back dissatisfied"):
        for kind in ("checkpoint", "day"):
            chart = rates.get_by_role("img", name=f"{title} by {kind}")
            assert chart.locator("circle").count() > 0, (title, kind)


def test_signing_out_ends_the_session(console_service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(console_service)
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    assert_accessible(page)
    page.goto("/")
    assert "/sign-in" in page.url


def test_keys_open_pages_and_their_list(console_service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(console_service)
    page.keyboard.press("?")
    assert page.get_by_role("heading", name="Keyboard shortcuts").is_visible()
    assert_accessible(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(console_service.url + "/")


def test_the_scheme_that_was_chosen_stays(console_service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(console_service, scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light or dark").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark


def test_without_script_the_overview_is_there(
    console_service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(console_service, script=False)
    assert page.get_by_role("heading", name="Overview").is_visible()
