"""A running service with sessions in it, and a real Chromium that is signed in to its console.

Tests in tests/console have these fixtures: `console_service` (one for a whole run: tests that
change what others see make their own by `console_running`), `browser`, and `sign_in`, which opens a
window of its own for a key."""

import atexit
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from penstock.access import ROLES
from penstock.access.keys import create_key
from penstock.backends.execution.calls import InlineExecutor
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from penstock_jobs.simulator.delivery import deliver
from penstock_jobs.simulator.demo.server import Server, running_server
from penstock_jobs.simulator.production import Production
from tests.support.lakes import Event, HandLake, hand_lake, make_event
from tests.support.reward_runs import store_samples
from tests.support.servers.jars import skip

__all__ = ["browser", "console_service", "sign_in"]

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
_WAIT_MS = 60_000
#: Tests see at once what they changed.
EACH_PAGE_ANEW = {"PENSTOCK_CONSOLE_FIGURES_SECONDS": "0"}
_SESSIONS, _SPACING_S = 48, 1500.0
_LINES_AT_ONCE = 20
#: What a page shows of it is text.
HOSTILE_TEXT = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    "[a](javascript:window.hacked=1) {{ 7 * 7 }} \u202egnp.exe\u202c " + "W" * 3000
)
HOSTILE_PATH = "src/<script>window.hacked = 1</script>/\u202etxt.js"
HOSTILE_SESSION = "hostile/<b>1</b>"


@dataclass
class ConsoleService:
    """`keys` are of each role of the tenant `default`,
    and "other" is an admin key of another tenant."""

    server: Server
    data: Path
    keys: dict[str, str]

    @property
    def url(self) -> str:
        return self.server.url


@contextmanager
def console_running(
    data: Path, *arguments: str, fill: Callable[[HandLake], None] | None = None
) -> Iterator[ConsoleService]:
    """A service over simulated sessions of the last day, the sample sessions, and a hostile one,
    with rewards by the default definition; `fill` adds to the lake before it starts."""
    shutil.copytree(_filled(), data, dirs_exist_ok=True)
    with hand_lake(data) as lake:
        if fill is not None:
            fill(lake)
            run(lake.lake, InlineExecutor(), RunRequest(find_definition()))
        database = lake.lake.database
        keys: dict[str, str] = {role: create_key(database, role, "default")[1] for role in ROLES}
        keys["other"] = create_key(database, "admin", "other")[1]
    with running_server(data, *arguments, settings=EACH_PAGE_ANEW) as server:
        yield ConsoleService(server, data, keys)


@cache
def _filled() -> Path:
    """The data directory that each of them begins with a copy of: made once a process."""
    data = Path(mkdtemp(prefix="penstock-"))
    atexit.register(shutil.rmtree, data, ignore_errors=True)
    with hand_lake(data) as lake:
        now_us = time.time_ns() // 1000
        start_us = now_us - round(_SESSIONS * _SPACING_S * 1_000_000)
        production = Production(7, start_us=start_us, spacing_s=_SPACING_S, name="console")
        lines = [line for _, line in deliver(production, _SESSIONS)]
        lake.clock.jump((start_us - lake.clock.now_us()) / 1_000_000)
        for at in range(0, len(lines), _LINES_AT_ONCE):
            part = lines[at : at + _LINES_AT_ONCE]
            lake.send(b"\n".join(part) + b"\n")
            lake.clock.jump(len(part) / len(lines) * _SESSIONS * _SPACING_S)
        store_samples(lake)
        lake.store(_hostile_events(now_us - 3_600_000_000))
        run(lake.lake, InlineExecutor(), RunRequest(find_definition()), now_us=now_us)
    return data


def _hostile_events(start_us: int) -> list[Event]:
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("session_start", {"client": HOSTILE_TEXT[:200]}),
        ("user_message", {"text": HOSTILE_TEXT}),
        (
            "model_call",
            {
                "call_id": "c1",
                "text": HOSTILE_TEXT,
                "thinking": HOSTILE_TEXT,
                "tool_calls": [{"id": "t1", "name": HOSTILE_TEXT[:60], "arguments": HOSTILE_TEXT}],
            },
        ),
        ("tool_result", {"call_id": "t1", "tool": "<b>run</b>", "output": HOSTILE_TEXT}),
        ("edit", {"path": HOSTILE_PATH, "before": "", "after": HOSTILE_TEXT + "\n"}),
        ("file_observed", {"path": HOSTILE_PATH, "text": HOSTILE_TEXT + "\n"}),
    ]
    return [
        make_event(
            HOSTILE_SESSION, number, kind, ts=start_us + number * 1_000_000, payload=payload,
            project="<i>project</i>", checkpoint="ckpt-<u>0</u>",
        )
        for number, (kind, payload) in enumerate(kinds)
    ]  # fmt: skip


@pytest.fixture(scope="session")
def console_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    with console_running(tmp_path_factory.mktemp("console")) as service:
        yield service


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium. Without one the test is skipped; with CI in the environment it fails.

    For one file: while Playwright is open its event loop runs, and nothing else in this process can
    have one."""
    programs = [path for name in _CHROMIUM if (path := shutil.which(name))]
    if not programs:
        skip("chromium is not installed")
    environment: dict[str, str | float | bool] = {
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PATH": os.environ.get("PATH", ""),
    }
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=programs[0], args=_FLAGS, env=environment
        )
        yield started
        started.close()


SignIn = Callable[..., Page]


@pytest.fixture
def sign_in(browser: Browser) -> Iterator[SignIn]:
    """`sign_in(service, "read", width=390, scheme="dark")`: a window that is signed in with this
    key and stands on the overview. What its script throws, and what the policy refuses, fails the
    test when it ends."""
    contexts = []
    problems: list[str] = []

    def open_window(
        service: ConsoleService,
        key: str = "admin",
        *,
        width: int = 1440,
        height: int = 900,
        scheme: Any = "light",
        script: bool = True,
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            java_script_enabled=script,
            base_url=service.url,
        )
        contexts.append(context)
        context.set_default_timeout(_WAIT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda said: problems.append(said.text) if "Content Security" in said.text else None,
        )
        page.goto("/sign-in")
        page.get_by_label("Key").fill(service.keys[key])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda url: "/sign-in" not in url)
        return page

    yield open_window
    for context in contexts:
        context.close()
    assert not problems


def assert_accessible(page: Page) -> None:
    """Axe finds nothing, by the rules of WCAG AA."""
    results = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    found = [
        (rule["id"], [node["html"][:200] for node in rule["nodes"]])
        for rule in results.response["violations"]
    ]
    assert not found, found


def assert_not_hacked(page: Page) -> None:
    """Nothing that others wrote ran, or became an element."""
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main a[href^='javascript']").count() == 0
