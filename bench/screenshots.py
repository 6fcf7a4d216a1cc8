"""Takes the pictures of docs/console.md in a headless Chromium, from sessions of the simulator and
from the story of the demo: `make screenshots`."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from shutil import which
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from penstock.access.keys import create_key
from penstock.lake.lake import open_existing
from penstock_jobs.simulator.demo.server import running_server
from tests.support.console_fixtures import console_running

_PICTURES = Path(__file__).parents[1] / "docs" / "console"
_DESK, _PHONE = 1440, 390
Source = Literal["sessions", "demo"]


@dataclass(frozen=True)
class Picture:
    source: Source
    path: str
    width: int = _DESK
    scheme: Literal["light", "dark"] = "light"
    height: int = 900


_PAGES: Mapping[str, Picture] = {
    "overview": Picture("demo", "/", height=1130),
    "overview-phone": Picture("demo", "/", _PHONE, "dark"),
    "sessions": Picture("sessions", "/sessions"),
    "session": Picture("sessions", "/sessions/sample-reverted", scheme="dark"),
    "session-phone": Picture("sessions", "/sessions/sample-reverted", _PHONE),
    "session-pair": Picture(
        "sessions", "/session-pairs?left=sample-kept&right=sample-reverted", height=1100
    ),
    "rewards": Picture("demo", "/rewards", height=1000),
    "monitors": Picture(
        "demo", "/rewards/monitors?before=demo-0004&after=demo-0005", scheme="dark", height=1000
    ),
    "labels": Picture("sessions", "/labels"),
    "shards": Picture("demo", "/shards"),
    "channel": Picture("demo", "/channels/production", height=1000),
    "verdict": Picture("demo", "/channels/production/verdict?checkpoint=demo-0002", height=1100),
    "suite": Picture("demo", "/suites/sums", scheme="dark"),
    "query": Picture(
        "sessions", "/query?sql=select+type,+count(*)+as+events+from+events+group+by+all+order+by+2"
    ),
    "health": Picture("demo", "/health", scheme="dark"),
}
_WAIT_MS = 120_000
_BYTES_MAX = 150_000


def main(names: list[str]) -> None:
    program = which("chromium") or which("google-chrome")
    if program is None:
        sys.exit("make screenshots needs chromium: apt-get install chromium")
    if unknown := set(names) - set(_PAGES):
        sys.exit(f"there is no picture {', '.join(sorted(unknown))}; known: {', '.join(_PAGES)}")
    chosen = {name: _PAGES[name] for name in names or _PAGES}
    _PICTURES.mkdir(exist_ok=True)
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory()))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        stack.callback(browser.close)
        services = {
            source: stack.enter_context(_service(source, data / source))
            for source in sorted({picture.source for picture in chosen.values()})
        }
        for name, picture in chosen.items():
            _write(_PICTURES / f"{name}.webp", _png(browser, picture, *services[picture.source]))


@contextmanager
def _service(source: Source, data: Path) -> Iterator[tuple[str, str]]:
    """Its address, and an admin's key."""
    if source == "sessions":
        with console_running(data) as service:
            yield service.url, service.keys["admin"]
        return
    run([Path(sys.executable).parent / "penstock", "demo", "--data", data], check=True)
    with open_existing(data) as lake:
        key = create_key(lake.database, "admin", "default")[1]
    with running_server(data) as server:
        yield server.url, key


def _png(browser: Browser, picture: Picture, url: str, key: str) -> bytes:
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme,
        base_url=url,
    )
    context.set_default_timeout(_WAIT_MS)
    page = context.new_page()
    page.goto("/sign-in")
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{url}/")
    page.goto(picture.path)
    png = page.screenshot()
    context.close()
    return png


def _write(path: Path, png: bytes) -> None:
    Image.open(BytesIO(png)).save(path, "WEBP", quality=80, method=6)
    size = path.stat().st_size
    print(f"{path.name}: {size / 1000:.0f} KB")
    if size > _BYTES_MAX:
        sys.exit(f"{path} is larger than {_BYTES_MAX} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
