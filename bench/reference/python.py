"""The page of the Python API, from the docstrings and the types of what `penstock` gives."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_overloads, get_type_hints

import penstock
from penstock.doors.python import Shards
from penstock.ingest.recorder.session import RecordedSession
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import Assignment
from penstock.registry.channels.promotion_endpoints import PromotionAnswer, RollbackAnswer
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.shards.manifest import Manifest
from penstock.shards.reader import DEFAULTS, ReadingOptions, ShardReader

_HEAD = (
    "# Python\n\n"
    "`import penstock` is quick: each name loads what it needs when it is used. `make docs` writes"
    " this page from the docstrings.\n\n```python\n{example}\n```\n\n"
    "More on [the recorder](../connect.md#the-recorder), [batches](../shards.md#the-loader) and"
    " [the views](sql.md).\n\n"
)
#: In this order; what they give comes behind them.
_NAMES = (
    "open",
    "Lake",
    "RemoteLake",
    "Query",
    "read_shard",
    "assign",
    "trained",
    "Recorder",
    "PenstockError",
)
_GIVEN = (
    RecordedSession,
    ShardReader,
    Shards,
    Manifest,
    Checkpoint,
    ChannelState,
    Assignment,
    PromotionAnswer,
    RollbackAnswer,
)
#: What the lakes' type of queries stands for.
_QUERIES = {"Lake": "Query", "RemoteLake": "RemoteQuery"}
_ERRORS = (
    "The root of all errors. Its text is a sentence: what happened, to what, what to do; `facts`"
    " has the same by name. `exit_status` is what a command ends with.\n"
)


def python_page() -> str:
    assert {*_NAMES, "__version__"} == {*penstock.__all__}
    _, *example, _ = inspect.cleandoc(penstock.__doc__ or "").split("\n\n")
    parts = [_HEAD.format(example="\n\n".join(example))]
    parts += ["".join(_section(name, getattr(penstock, name))) for name in _NAMES]
    parts += ["## What they give\n\n" + "".join(map(_given, _GIVEN))]
    return "".join(parts)


def _section(name: str, thing: Any) -> Iterator[str]:
    yield f"## penstock.{name}\n\n"
    if not inspect.isclass(thing):
        signatures = [_signature(f"penstock.{name}", each) for each in _overloads(thing)]
        yield "```python\n" + "\n".join(signatures) + f"\n```\n\n{_text(thing)}\n\n"
        yield "".join(_options()) if name == "read_shard" else ""
    elif issubclass(thing, Exception):
        yield f"{_ERRORS}\n"
    else:
        yield f"{_text(thing)}\n\n"
        lines = [
            f"- `{_signature(m, function)}`: {_text(function)}\n" for m, function in _methods(thing)
        ]
        named = [(m, value) for m, value in vars(thing).items() if isinstance(value, property)]
        lines += [f"- `{m}`: {_text(value)}\n" for m, value in named]
        yield "".join(lines).replace("~QueryT", _QUERIES.get(name, "")) + "\n"


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """What people call, that of its bases first."""
    names: dict[str, None] = {}
    for base in reversed(kind.__mro__[:-1]):
        own = (name for name, value in vars(base).items() if inspect.isfunction(value))
        names |= dict.fromkeys(name for name in own if not name.startswith("_"))
    for name in names:
        function = getattr(kind, name)
        if name not in ("run", "write") and inspect.getdoc(function):
            yield name, function


def _options() -> Iterator[str]:
    defaults = dict[str, object](DEFAULTS)
    for name, kind in get_type_hints(ReadingOptions).items():
        yield f"- `{name}: {_plain(inspect.formatannotation(kind))} = {defaults[name]!r}`\n"
    yield "\n"


def _given(kind: type) -> str:
    if issubclass(kind, ShardReader | RecordedSession | Shards):
        names = [f"`{_signature(name, function)}`" for name, function in _methods(kind)]
        return f"- `{kind.__name__}`: {_text(kind)} {', '.join(names)}\n"
    named = ", ".join(f"`{name}`" for name in get_type_hints(kind))
    return f"- `{kind.__name__}`: {named}\n"


def _overloads(function: Any) -> list[Any]:
    return list(get_overloads(function)) or [function]


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    own = [value for key, value in signature.parameters.items() if key != "self"]
    text = str(signature.replace(parameters=own))
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return name + re.sub(r"\*\*options: [^)]*\)", "**options)", _plain(text))


def _plain(text: str) -> str:
    """Names of types without the modules that they are from, and as `penstock` has them."""
    text = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Z])", "", text)
    return text.replace("LakeWithChannels", "Lake").replace("LakeQuery", "Query")


def _text(thing: Any) -> str:
    """Each paragraph on one line: pages are not wrapped."""
    paragraphs = inspect.cleandoc(inspect.getdoc(thing) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
