"""The login of a person to a service: its address and key, in a private file."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.core.errors import InvalidInput
from penstock.core.files import make_directory, open_private

_NAME = "login.json"


@dataclass(frozen=True)
class Login:
    url: str
    key: str = field(repr=False)


def login_path() -> Path:
    named = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(named) if named.startswith("/") else Path.home() / ".config"
    return folder / "penstock" / _NAME


def read_login() -> Login | None:
    path = login_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Login)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        why = f"{error}; `penstock logout` removes it"
        raise InvalidInput(what=f"The file {path}", why=why) from error


def keep_login(login: Login) -> Path:
    path = login_path()
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        make_directory(path.parent)
        unfinished.unlink(missing_ok=True)  # a file that was there would keep its mode
        with open_private(unfinished, "xb") as file:
            file.write(msgspec.json.encode(login) + b"\n")
        unfinished.rename(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The file {path}", why=why) from error
    return path


def forget_login() -> bool:
    """Remove the login; False if there was none."""
    path = login_path()
    known = path.exists()
    path.unlink(missing_ok=True)
    return known


def service_key(url: str) -> str | None:
    """Find the key for a service: PENSTOCK_KEY, else the key of the login. Raises InvalidInput."""
    key = os.environ.get("PENSTOCK_KEY", "").strip()  # files of secrets end with a line break
    if not key.isascii() or not key.isprintable():
        raise InvalidInput(what="PENSTOCK_KEY", why="there are characters in it that no key has")
    if key:
        return key
    login = read_login()
    same = login is not None and login.url.rstrip("/") == url.rstrip("/")
    return login.key if login is not None and same else None
