"""Visits of the console over HTTP, as no browser asks."""

import http.client
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from penstock.doors.console.sign_in import form_proof
from penstock_jobs.simulator.demo.server import Server


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: str

    def cookies(self) -> dict[str, str]:
        lines = self.headers.get_all("set-cookie", [])
        return dict(line.split(";")[0].split("=", 1) for line in lines)


@dataclass
class Visits:
    """A service, and the keys of its tenant by role."""

    server: Server
    data: Path
    keys: dict[str, str]

    def ask(
        self, method: str, path: str, cookie: str = "", form: object = None, **headers: str
    ) -> Reply:
        host = self.server.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        sent = {"Cookie": cookie} if cookie else {}
        body = None
        if form is not None:
            body = urlencode(form)  # type: ignore[arg-type]
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, body, sent | headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, answer.headers, answer.read().decode(errors="replace"))
        connection.close()
        return reply

    def sign_in(self, key: str) -> Reply:
        form_page = self.ask("GET", "/sign-in")
        [(name, cookie)] = form_page.cookies().items()
        fields = {"key": key, "form_proof": form_proof(cookie)}
        return self.ask("POST", "/sign-in", f"{name}={cookie}", fields)

    def session(self, role: str) -> str:
        """The cookie of a browser that signed in."""
        cookies = self.sign_in(self.keys[role]).cookies()
        [name] = [name for name in cookies if "session" in name]
        return f"{name}={cookies[name]}"
