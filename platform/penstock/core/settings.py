"""Settings: their declaration, their values and where each value came from.

They are read from `penstock.toml` in the data directory, `PENSTOCK_*` in the environment, and
flags; the later wins. Each room declares its own as a subclass of RoomSettings and lists it in its
`room.py`."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from penstock.core.errors import SettingInvalid
from penstock.core.room import rooms

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

ENVIRONMENT_PREFIX = "PENSTOCK_"
FILE_NAME = "penstock.toml"
DATA_DEFAULT = "penstock-data"
_FILE_CHARS_MAX = MIB
_KINDS = {int: "whole number", float: "number", str: "text"}


def setting(
    default: str | float,
    meaning: str,
    turn: str,
    *,
    minimum: float | None = None,
    at_most: str = "",
    needs: str = "",
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """Declare a setting as a field. It has the field's name and the type of `default`."""
    facts: dict[str, Any] = {"meaning": meaning, "turn": turn, "minimum": minimum}
    facts |= {"at_most": at_most, "needs": needs, "choices": choices}
    return field(default=default, repr=not secret, metadata=facts)


@dataclass(frozen=True, kw_only=True)
class RoomSettings:
    """The settings of one room."""

    #: Variables of the environment that the room sets for its programs and that are no settings.
    VARIABLES: ClassVar[frozenset[str]] = frozenset()


_Room = TypeVar("_Room", bound=RoomSettings)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one process: those that all rooms share, and the rooms' own."""

    data: Path
    database_url: str = setting(
        "",
        "metadata database; default sqlite:///DIR/penstock.db",
        "Set it to PostgreSQL when several machines share a lake.",
    )
    log_url: str = setting(
        "", "event log; default local:DIR/log", "Set it to Kafka when several machines take events."
    )
    store_url: str = setting(
        "",
        "object store of the lake; default file://DIR/lake",
        "Set it to a bucket when several machines read the lake, or it outgrows a disk.",
    )
    shutdown_seconds_max: float = setting(
        20.0,
        "time to flush after a signal to stop",
        "Keep it below the time after which a supervisor kills.",
        minimum=0,
    )
    log_format: str = setting(
        "text",
        "log lines as text or json",
        "Set it to json where a program collects them.",
        choices=("text", "json"),
    )
    secret_key_file: str = setting(
        "",
        "file with the key of secrets in the database; default DIR/secret.key",
        "Set it when several machines share a database: each needs the same key.",
    )
    signing_key_file: str = setting(
        "",
        "file with the key that reports and proofs are signed with; default DIR/signing.key",
        "Set it when several machines sign, or to keep the key apart from the lake.",
    )
    rooms: tuple[RoomSettings, ...] = ()

    def room(self, kind: type[_Room]) -> _Room:
        for settings in self.rooms:
            if isinstance(settings, kind):
                return settings
        return kind()


@dataclass(frozen=True)
class ResolvedSetting:
    name: str
    value: Any
    origin: str
    meaning: str
    secret: bool = False

    @property
    def shown(self) -> Any:
        if self.secret and self.value:
            return "***"
        return without_secrets(self.value) if isinstance(self.value, str) else self.value

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


def load_settings(
    data: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Read the settings from file, environment and flags. Raises SettingInvalid."""
    values = {setting.name: setting.value for setting in resolve(data, environment, flags)}

    def chosen(kind: type[Any]) -> dict[str, Any]:
        return {field.name: values[field.name] for field in fields(kind) if field.metadata}

    rooms = tuple(room(**chosen(room)) for room in room_kinds())
    return Settings(data=values["data"], rooms=rooms, **chosen(Settings))


def resolve(
    data: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> list[ResolvedSetting]:
    """Read each setting with its origin. Raises SettingInvalid."""
    environment = os.environ if environment is None else environment
    named = environment.get(f"{ENVIRONMENT_PREFIX}DATA")
    origin = "a flag" if data is not None else "the environment" if named else "default"
    directory = Path(data if data is not None else named or DATA_DEFAULT).absolute()
    if directory.exists() and not directory.is_dir():
        raise SettingInvalid(name="data", origin=origin, why=f"{directory} is not a directory")
    prefixed = {
        variable.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for variable, value in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX)
    }
    known = variables()
    in_environment = {name: value for name, value in prefixed.items() if name not in known}
    in_flags = {name: value for name, value in (flags or {}).items() if value is not None}
    file = directory / FILE_NAME
    layers: list[tuple[str, Mapping[str, object]]] = [
        (str(file), _read_file(file)),
        ("the environment", in_environment),
        ("a flag", in_flags),
    ]
    for origin_, values in layers:
        _refuse_unknown(values, origin_)
    meaning = "directory of the embedded default"
    resolved = {"data": ResolvedSetting("data", directory, origin, meaning)}
    addresses = {
        "database_url": f"sqlite:///{directory}/penstock.db",
        "log_url": f"local:{directory}/log",
        "store_url": f"file://{directory}/lake",
    }
    for declared in declarations():
        name, meaning, secret = declared.name, declared.metadata["meaning"], not declared.repr
        value, origin = addresses.get(name, declared.default), "default"
        for layer, values in layers:
            if name in values:
                value, origin = _converted(declared, values[name], layer), layer
        resolved[name] = ResolvedSetting(name, value, origin, meaning, secret)
    for declared in declarations():
        _check_relations(declared, resolved)
    return list(resolved.values())


@cache
def room_kinds() -> tuple[type[RoomSettings], ...]:
    return tuple(kind for room in rooms() for kind in room.settings())


def declarations() -> Iterator[Field[Any]]:
    """Every setting but `data`."""
    kinds: list[type[Settings | RoomSettings]] = [Settings, *room_kinds()]
    for kind in kinds:
        yield from (field for field in fields(kind) if field.metadata)


def variables() -> frozenset[str]:
    """Names that may follow the prefix and are no settings."""
    return frozenset({"data", "key", "url"}).union(*(room.VARIABLES for room in room_kinds()))


_PASSWORD = re.compile(r"(?<=://)([^:@?/]*):.*@")
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&]*(?:secret|pass|token|key|credential)[^=&]*)=[^&]*", re.IGNORECASE
)


def without_secrets(url: str) -> str:
    """Mask passwords in an address, and parameters whose names sound like secrets."""
    return _SECRET_PARAMETER.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", url))


def _refuse_unknown(values: Mapping[str, object], origin: str) -> None:
    known = [declared.name for declared in declarations()]
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}" if near else ""
            raise SettingInvalid(name=name, origin=origin, why=f"there is no such setting{hint}")


def _read_file(path: Path) -> dict[str, object]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_FILE_CHARS_MAX + 1)
    except FileNotFoundError:
        return {}
    if len(text) > _FILE_CHARS_MAX:
        why = f"it is longer than {_FILE_CHARS_MAX} characters"
        raise SettingInvalid(name="(the whole file)", origin=path, why=why)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingInvalid(name="(the whole file)", origin=path, why=str(error)) from None


def _converted(declared: Field[Any], value: object, origin: str) -> Any:
    kind: type[Any] = type(declared.default)
    minimum, choices = declared.metadata["minimum"], declared.metadata["choices"]
    why = f"{repr(value) if declared.repr else 'the value'} is not a {_KINDS[kind]}"
    try:
        converted: Any = kind(value)
        rounded = kind is int and isinstance(value, float) and value != converted
        fits = not rounded and (kind is not str or isinstance(value, str))
    except (TypeError, ValueError):
        fits = False
    if fits and minimum is not None and not converted >= minimum:
        fits, why = False, f"{value} is below {minimum}"
    elif fits and choices and converted not in choices:
        fits, why = False, f"it is {' or '.join(choices)}"
    if not fits:
        raise SettingInvalid(name=declared.name, origin=origin, why=why)
    return converted


def _check_relations(declared: Field[Any], resolved: Mapping[str, ResolvedSetting]) -> None:
    at_most, needs = declared.metadata["at_most"], declared.metadata["needs"]
    setting = resolved[declared.name]
    if at_most and setting.value > (limit := resolved[at_most].value):
        why = f"{setting.value} is over {at_most}, which is {limit}"
        raise SettingInvalid(name=setting.name, origin=setting.origin, why=why)
    if needs and setting.value and not resolved[needs].value:
        why = f"{setting.name} is set, and {needs} is not: set both"
        raise SettingInvalid(name=needs, origin=resolved[needs].origin, why=why)
