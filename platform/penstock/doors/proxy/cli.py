"""`penstock record`."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.backends.terminal import options
from penstock.backends.terminal.output import say, show_json_line, show_text
from penstock.core.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.backends.http.address import HttpAddress


def record(
    upstream: Annotated[
        str,
        typer.Option(metavar="URL", help="The engine or provider that answers, such as a vLLM."),
    ],
    *,
    url: options.Url = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on, 0 for a free one.", min=0, max=65_535)
    ] = 8788,
    engine: Annotated[
        Literal["auto", "vllm", "sglang", "none"],
        typer.Option(help="What is asked for token ids and log-probabilities; auto: it is asked."),
    ] = "auto",
    project: Annotated[str | None, typer.Option(help="Of sessions that name none.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Of calls that name none.")] = None,
    consent: Annotated[
        Literal["train", "no_train", "unknown"] | None,
        typer.Option(help="Of sessions that say nothing of it."),
    ] = None,
    follow: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="DIR",
            help="Where `penstock channels follow` keeps its copies: the version and the "
            "checkpoint are those that it loaded.",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            parser=options.path, metavar="FILE", help="The engine's tokenizer.json, for its digest."
        ),
    ] = None,
    spool: Annotated[
        Path | None,
        typer.Option(
            parser=options.path,
            metavar="DIR",
            help="Where events wait while the service is away; else the recorder's own folder.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Pass agents' requests on to a model's server and record them, until SIGTERM.

    An agent needs another base URL and nothing else: http://127.0.0.1:8788/s/SESSION/v1. The
    service being away never reaches it: events wait on disk.

    Example: penstock record --upstream http://127.0.0.1:8000 --url http://127.0.0.1:8787
    """
    from penstock.backends.http.login import service_key
    from penstock.core.logs import configure_logs
    from penstock.doors.proxy.app import ProxyPlan, bound_socket, serve_proxy
    from penstock.doors.proxy.engine import EngineKind
    from penstock.doors.proxy.target import Labels
    from penstock.doors.proxy.transcription_process import RecordingPlan
    from penstock.lake.client import service_url

    configure_logs("text")
    service = service_url(None, url)
    if service is None:
        why = "name the service that records: --url, PENSTOCK_URL or `penstock login`"
        raise InvalidInput(what="penstock record", why=why)
    plan = ProxyPlan(
        upstream=_upstream(upstream),
        engine=None if engine == "auto" else EngineKind(engine),
        labels=Labels(project=project, checkpoint=checkpoint, consent=consent),
        serving_state=follow / "state.json" if follow else None,
    )
    bound = bound_socket(host, port)
    address, taken = bound.getsockname()[:2]
    own = f"http://[{address}]:{taken}" if ":" in address else f"http://{address}:{taken}"

    def ready() -> None:
        if json:
            show_json_line({"url": own, "upstream": upstream, "service": service})
        else:
            show_text(f"Recording on {own}: an agent's base URL is {own}/s/SESSION/v1")

    if not address.startswith(("127.", "::1")):
        say(f"{own} is open to others: whoever reaches it reaches the upstream")
    recording = RecordingPlan(
        service, service_key(service), str(spool.absolute()) if spool else None, _digest(tokenizer)
    )
    counts = serve_proxy(plan, recording, bound, ready)
    say(f"{counts['calls']} calls passed, {counts['unrecorded']} of them were not recorded")


def _upstream(text: str) -> "HttpAddress":
    from penstock.backends.http.address import HttpAddress

    address = HttpAddress.of(text, "--upstream")
    if address.login is not None or address.query or address.fragment:
        why = "it holds a login, a question or a fragment: agents send their own keys"
        raise InvalidInput(what="--upstream", why=why)
    path = address.path.rstrip("/").removesuffix("/v1")  # as base URLs of OpenAI's clients end
    return replace(address, path=path)


def _digest(tokenizer: Path | None) -> str | None:
    if tokenizer is None:
        return None
    try:
        return hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The tokenizer {tokenizer}", why=why) from error
