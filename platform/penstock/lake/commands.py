"""Commands over a lake. A command yields its answer, which --json prints. The code behind the
`yield` shows it to a person.

    @app.command("show")
    @command()
    def show(client: Client, name: Name) -> Iterator[object]:
        answer = client.call(SHOW_CHANNEL, ChannelRequest(name=name))
        yield answer
        show_fields(answer)

A parameter `client` gives a command the options --data, --url and --tenant, a parameter `lake` the
option --data. Where the options are the fields of a request, the function only shows the answer:

    @app.command("list")
    @asks(LIST_CHANNELS)
    def list_channels(page: ChannelsAnswer) -> None:
        show_rows(page.channels, "channel", "version", "checkpoint")

The `msgspec.Meta` of a field describes its option: the description is the help, and `extra` may
hold another `help`, a `flag`, a `metavar` and a `parser`. Fields that the path names are
arguments."""

import inspect
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from inspect import Parameter, Signature
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import typer
from msgspec.structs import FieldInfo

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say_next_page, show_json
from penstock.core.endpoint import A, Endpoint, Page, R
from penstock.core.errors import PenstockError
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import open_client
from penstock.lake.lake import open_existing

Steps = Iterator[object]
#: Options that come last.
_LAST = ("limit", "cursor")


@dataclass(frozen=True)
class Outcome:
    """An answer, and whether the command fails: with exit status 1, or with an error."""

    document: object
    failed: bool | PenstockError


def command(
    *, by: bool = False, make: bool | str = False, tenant: bool = True
) -> Callable[[Callable[..., Steps | None]], Callable[..., None]]:
    """Make a command with the parameters of the function; `by` adds --by, `tenant` adds --tenant.
    `make` makes a missing lake; as a text it names the option for which that is done.

    The function may take `data`, `tenant` and so on itself. One with `json` shows all by itself."""

    def declared(function: Callable[..., Steps | None]) -> Callable[..., None]:
        own = dict(inspect.signature(function).parameters)
        client, lake = own.pop("client", None), own.pop("lake", None)

        def run(**given: Any) -> None:
            passed = {name: given[name] for name in own}
            if client is not None:
                making = make if isinstance(make, bool) else given[make] is not None
                with open_client(**_place(given), make=making) as at:
                    _answer(function(at, **passed), json=given["json"])
            elif lake is not None:
                with open_existing(given["data"]) as opened:
                    _answer(function(opened, **passed), json=given["json"])
            else:
                _answer(function(**passed), json=given["json"])

        shared = []
        if client is not None:
            shared = _client_options(by=by, tenant=tenant)
        elif lake is not None:
            shared = [_shared("data", options.Data)]
        return _with_options(run, function, [*own.values()], shared)

    return declared


def asks(
    endpoint: Endpoint[R, A], *, by: bool = False, make: bool = False, tenant: bool = True
) -> Callable[[Callable[[A], object]], Callable[..., None]]:
    """Make a command whose options are the fields of a request. The function shows the answer."""
    fields = sorted(msgspec.structs.fields(endpoint.request), key=lambda field: field.name in _LAST)
    own = [_parameter(field, in_path=f"{{{field.name}}}" in endpoint.path) for field in fields]

    def declared(show: Callable[[A], object]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            asked = {field.name: given[field.name] for field in fields}
            said = {name: value for name, value in asked.items() if value is not None}
            with open_client(**_place(given), make=make) as client:
                answer = client.call(endpoint, endpoint.request(**said))
            if isinstance(answer, Page):
                say_next_page(answer.next)
            show_json(_only_list(answer)) if given["json"] else show(answer)

        return _with_options(run, show, own, _client_options(by=by, tenant=tenant))

    return declared


def _place(given: dict[str, Any]) -> dict[str, Any]:
    names = ("data", "url", "tenant", "by", "key")
    return {name: given[name] for name in names if name in given}


def _answer(steps: Steps | None, *, json: bool) -> None:
    if not isinstance(steps, Generator):
        return
    answer = next(steps, None)
    if answer is None:
        return
    outcome = answer if isinstance(answer, Outcome) else Outcome(answer, failed=False)
    if json:
        show_json(outcome.document)
        steps.close()
    for _ in steps:
        pass
    if isinstance(outcome.failed, PenstockError):
        raise outcome.failed
    if outcome.failed:
        raise typer.Exit(1)


def _only_list(answer: Any) -> object:
    """Unwrap an answer that holds nothing but a list."""
    names = [name for name in getattr(answer, "__struct_fields__", ()) if name != "next"]
    only = getattr(answer, names[0]) if len(names) == 1 else None
    return only if isinstance(only, list) else answer


# Options


def _shared(name: str, kind: Any, default: object = None) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _client_options(*, by: bool, tenant: bool) -> list[Parameter]:
    place = [_shared("data", options.AnyData), _shared("url", options.Url)]
    of_tenant = [_shared("tenant", options.Tenant, TENANT_DEFAULT)] if tenant else []
    return [*([_shared("by", options.By)] if by else []), *place, *of_tenant]


def _with_options(
    run: Callable[..., None],
    function: Callable[..., object],
    own: list[Parameter],
    shared: list[Parameter],
) -> Callable[..., None]:
    """Give `run` the name and the help of the function, and the options in typer's form."""
    names = {each.name for each in own}
    more = [*shared, _shared("json", options.Json, False)]
    whole = [*own, *(each for each in more if each.name not in names)]
    keywords = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in whole]
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def _parameter(field: FieldInfo, *, in_path: bool) -> Parameter:
    kind = _without_meta(field.type)
    meta = _meta(field.type) or msgspec.Meta()
    extra = dict(meta.extra or {})
    flag = extra.pop("flag", f"--{field.name.replace('_', '-')}")
    how: dict[str, Any] = {"help": meta.description, **extra}
    if "parser" not in extra:
        how |= {"min": meta.ge, "max": meta.le}
    default = None if field.default is msgspec.NODEFAULT or "parser" in how else field.default
    asked: Any = typer.Argument(**how) if in_path else typer.Option(flag, **how)
    if field.required:
        default = Parameter.empty
    return _shared(field.name, Annotated[kind, asked], default)


def _meta(kind: Any) -> msgspec.Meta | None:
    """Find the metadata of a type, also of an optional one."""
    if get_origin(kind) is Annotated:
        return next((part for part in kind.__metadata__ if isinstance(part, msgspec.Meta)), None)
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return next((meta for part in parts if (meta := _meta(part))), None)


def _without_meta(kind: Any) -> Any:
    if get_origin(kind) is Annotated:
        return _without_meta(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(_without_meta(part) for part in get_args(kind))]  # noqa: UP007
    return kind
