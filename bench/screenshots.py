"""Takes the pictures of docs/console.md in a headless Chromium, from sessions of the simulator:
`make screenshots`."""

import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.support.console_fixtures import console_running

_PICTURES = Path(__file__).parents[1] / "docs" / "console"
#: By name: the page, its width and its scheme.
_PAGES: Mapping[str, tuple[str, int, str]] = {
    "overview": ("/", 1440, "light"),
    "overview-phone": ("/", 390, "dark"),
    "sessions": ("/sessions", 1440, "light"),
    "session": ("/sessions/sample-reverted", 1440, "dark"),
    "session-pair": ("/session-pairs?left=sample-kept&right=sample-reverted", 1440, "light"),
}
_HEIGHT = 900
_WAIT_MS = 120_000
_BYTES_MAX = 150_000


def main(names: list[str]) -> None:
    program = which("chromium") or which("google-chrome")
    if program is None:
        sys.exit("make screenshots needs chromium: apt-get install chromium")
    _PICTURES.mkdir(exist_ok=True)
    with (
        TemporaryDirectory() as data,
        console_running(Path(data) / "lake") as service,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, (path, width, scheme) in _PAGES.items():
            if names and name not in names:
                continue
            context = browser.new_context(
                viewport={"width": width, "height": _HEIGHT},
                color_scheme="dark" if scheme == "dark" else "light",
                base_url=service.url,
            )
            context.set_default_timeout(_WAIT_MS)
            page = context.new_page()
            page.goto("/sign-in")
            page.get_by_label("Key").fill(service.keys["admin"])
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(f"{service.url}/")
            page.goto(path)
            _write(_PICTURES / f"{name}.webp", page.screenshot())
            context.close()
        browser.close()


def _write(path: Path, png: bytes) -> None:
    Image.open(BytesIO(png)).save(path, "WEBP", quality=80, method=6)
    size = path.stat().st_size
    print(f"{path.name}: {size / 1000:.0f} KB")
    if size > _BYTES_MAX:
        sys.exit(f"{path} is larger than {_BYTES_MAX} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
