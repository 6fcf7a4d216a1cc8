"""The command line. It loads only the room of the command that runs."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

import penstock
from penstock.backends.terminal.interruption import INTERRUPTED, listening_to_ctrl_c
from penstock.backends.terminal.output import (
    guard_terminal,
    show_error,
    show_error_document,
    show_text,
)
from penstock.core.arrow_start import keep_freed_memory, start_arrow_light
from penstock.core.errors import InvalidInput, PenstockError, StoreNeeded, one_line
from penstock.core.room import Room, Task, load, rooms

_STYLE: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}


@dataclass(frozen=True)
class _Listed:
    room: Room
    summary: str


@cache
def _tasks() -> dict[str, dict[str, _Listed]]:
    """The commands of each task, as help lists them."""
    tasks: dict[str, dict[str, _Listed]] = {task: {} for task in get_args(Task)}
    for room in rooms():
        for task, summaries in room.summaries.items():
            tasks[task] |= {name: _Listed(room, text) for name, text in summaries.items()}
    return {task: dict(sorted(listed.items())) for task, listed in tasks.items()}


@cache
def _commands() -> dict[str, _Listed]:
    return {name: listed for task in _tasks().values() for name, listed in task.items()}


class CommandGroup(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, part.get_short_help_str(1_000)) for name, part in self.commands.items()]
            )


class RoomCommands(CommandGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(_commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in _commands():
            self.commands[cmd_name] = _load_command(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in _commands() and (near := self._near(args[0])):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def _near(self, typo: str) -> list[str]:
        """Commands, also of groups, whose last word is nearly this."""
        calls = {f"`penstock {name}`": name for name in _commands()}
        for name in _commands():
            for part in getattr(self.get_command(None, name), "commands", ()):
                calls[f"`penstock {name} {part}`"] = part
        words = get_close_matches(typo, sorted(set(calls.values())))
        return [call for word in words for call, last in calls.items() if last == word][:3]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        outlines = [TyperCommand(name, help=each.summary) for name, each in _commands().items()]
        return super().shell_complete(typer.Context(TyperGroup(commands=outlines)), incomplete)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for task, commands in _tasks().items():
            with formatter.section(task):
                # An even column over all sections.
                lines = [(f"{name:12}", each.summary) for name, each in commands.items()]
                formatter.write_dl(lines)


def _load_command(name: str) -> Any:
    command = load(_commands()[name].room.commands[name])
    loaded = typer.Typer(**_STYLE, add_completion=False)
    if isinstance(command, typer.Typer):
        for room in rooms():
            for extra, place in room.commands.items():
                group, _, part = extra.partition(".")
                if part and group == name:
                    command.command(part)(load(place))
        loaded.add_typer(command, name=name, cls=CommandGroup)
    else:
        loaded.callback()(_about)
        loaded.command(name)(command)
    whole = typer.main.get_group(loaded).commands[name]
    _name_values(whole)
    return whole


class _Conversion:
    """The conversion of option values. Few need typer's own, which loads pydantic."""

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:
        kind, several = param.type_descriptor, param.multiple or param.nargs == -1
        parse = kind.parameter_info.parser
        if value is None:
            return () if several else None
        if parse is None and (type(value) is kind.annotation or value is param.default):
            return value
        if parse is not None and not several:
            with suppress(ValueError):  # typer names the option that it is about
                return parse(value)
        return _typers_own(param).coerce(value, param, ctx)


_typers_own = TyperOption.get_runtime_param
TyperOption.get_runtime_param = lambda _: _Conversion  # type: ignore
TyperArgument.get_runtime_param = lambda _: _Conversion  # type: ignore


#: Placeholders of option values in help texts.
_VALUE_NAMES = {int: "N", float: "NUMBER", Path: "PATH"}


def _name_values(command: Any) -> None:
    """Name option values in help by their meaning, `CHECKPOINT`, not by their type."""
    for part in getattr(command, "commands", {}).values():
        _name_values(part)
    for param in command.params:
        kind = param.type_descriptor
        if kind.is_choice or getattr(param, "is_flag", False):
            continue
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        if param.metavar is None:
            (annotation,) = get_args(kind.annotation) if kind.is_list else (kind.annotation,)
            param.metavar = _VALUE_NAMES.get(annotation) or param.name.rstrip("_").upper()


def _show_version(wanted: bool) -> None:
    if wanted:
        show_text(f"penstock {penstock.__version__}")
        raise typer.Exit


def _about(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Trajectories of coding agents, from production to training and back."""


app = typer.Typer(cls=RoomCommands, name="penstock", no_args_is_help=True, **_STYLE)
app.callback()(_about)


def main() -> None:
    """Run a command. An error becomes a message and an exit status; with --json also a document.

    Ctrl-C becomes an exit status without a message."""
    guard_terminal()
    start_arrow_light()
    if sys.argv[1:2] == ["serve"]:  # before the first thread
        keep_freed_memory()
    with listening_to_ctrl_c() as interruption:
        try:
            status = _run()
        except Exception:
            if not interruption.known:
                raise
            status = INTERRUPTED  # libraries raise errors of their own for Ctrl-C
        if interruption.known and status:
            status = INTERRUPTED
    sys.exit(status)


def _run() -> int:
    try:
        status = app(standalone_mode=False)
    except typer.TyperException as error:  # wrong usage
        if refusal := _url_refusal(error):
            return _refuse(refusal)
        if _answers_json():
            show_error_document("WrongUsage", error.format_message(), error.exit_code)
        error.show()  # type: ignore[attr-defined]  # all its subclasses have it
        return error.exit_code
    except typer.Abort:  # the end of the input
        return INTERRUPTED
    except PenstockError as error:
        return _refuse(error)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()  # noqa: TID251  # nothing is written
        return 0
    return status if isinstance(status, int) else 0


def _refuse(error: PenstockError) -> int:
    if _answers_json():
        name, fields = type(error).__name__, error.http_fields
        show_error_document(name, one_line(error), error.exit_status, fields)
    show_error(error)
    return error.exit_status


def _url_refusal(error: typer.TyperException) -> PenstockError | None:
    context = getattr(error, "ctx", None)
    if getattr(error, "option_name", "") != "--url" or context is None:
        return None
    if any(param.name == "data" for param in context.command.params):
        return StoreNeeded(command=context.command_path)
    return InvalidInput(
        what="--url", why=f"`{context.command_path}` calls no service; leave it out"
    )


def _answers_json() -> bool:
    """Whether --json was given; a command may fail before it reads its options."""
    return "--json" in takewhile(lambda argument: argument != "--", sys.argv)
