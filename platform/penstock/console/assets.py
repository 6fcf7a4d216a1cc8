"""The style sheet and the modules of script, from the wheel. The digest of all of them is in their
address: a browser keeps them for ever, and a release has other addresses."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from litestar import Response, get
from litestar.exceptions import NotFoundException

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"
_DIGEST_CHARS = 16


@dataclass(frozen=True)
class Assets:
    digest: str
    contents: dict[str, bytes]

    def url(self, name: str) -> str:
        if name not in self.contents:
            raise KeyError(name)
        return f"/assets/{self.digest}/{name}"


@cache
def assets() -> Assets:
    folder = files("penstock.console").joinpath("assets")
    named = {file.name: file.read_bytes() for file in folder.iterdir()}
    contents = {name: named[name] for name in sorted(named) if name.split(".")[-1] in _TYPES}
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return Assets(digest.hexdigest()[:_DIGEST_CHARS], contents)


@get("/assets/{digest:str}/{name:str}", include_in_schema=False, sync_to_thread=False)
def get_asset(digest: str, name: str) -> Response[Any]:
    held = assets()
    content = held.contents.get(name)
    if content is None or digest != held.digest:
        raise NotFoundException
    headers = {"Cache-Control": _FOR_EVER, "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=_TYPES[name.rsplit(".", maxsplit=1)[-1]], headers=headers)
