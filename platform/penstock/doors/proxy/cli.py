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


UpstreamUrl = Annotated[
    str, typer.Option(metavar="URL", help="Engine or provider that answers, such as vLLM.")
]
Port = Annotated[int, typer.Option(help="Port to listen on, 0 for a free one.", min=0, max=65_535)]
Engine = Annotated[
    Literal["auto", "vllm", "sglang", "none"],
    typer.Option(help="Engine to request token ids and log-probabilities from; auto detects it."),
]
Consent = Annotated[
    Literal["train", "no_train", "unknown"] | None,
    typer.Option(help="Consent of sessions that state none."),
]
Follow = Annotated[
    Path | None,
    typer.Option(
        parser=options.path,
        metavar="DIR",
        help="Folder of `penstock channels follow`; calls get the version and checkpoint that it "
        "loaded.",
    ),
]
Tokenizer = Annotated[
    Path | None,
    typer.Option(
        parser=options.path, metavar="FILE", help="The engine's tokenizer.json, to name it."
    ),
]
Temperature = Annotated[
    float | None, typer.Option(help="Where neither call nor engine tells it.", min=0)
]
Spool = Annotated[
    Path | None,
    typer.Option(
        parser=options.path,
        metavar="DIR",
        help="Folder for events while the service is away. Default: the recorder's own.",
    ),
]


def record(
    upstream: UpstreamUrl,
    *,
    url: options.Url = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Port = 8788,
    engine: Engine = "auto",
    project: Annotated[str | None, typer.Option(help="Project of sessions that name none.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint of calls that name none.")
    ] = None,
    consent: Consent = None,
    follow: Follow = None,
    tokenizer: Tokenizer = None,
    temperature: Temperature = None,
    spool: Spool = None,
    json: options.Json = False,
) -> None:
    """Proxy a model's server and record the calls that pass, until SIGTERM.

    An agent only needs another base URL: http://127.0.0.1:8788/s/SESSION/v1. It never notices when
    the service is away: events wait on disk.

    Example: penstock record --upstream http://127.0.0.1:8000 --url http://127.0.0.1:8787
    """
    from penstock.backends.http.login import service_key
    from penstock.core.logs import configure_logs
    from penstock.doors.proxy.app import ProxyPlan, serve_proxy
    from penstock.doors.proxy.dialogue import Labels
    from penstock.doors.proxy.engine import EngineKind
    from penstock.doors.proxy.transcription_process import RecordingPlan
    from penstock.doors.server.wire import listen, listening_url
    from penstock.lake.client import service_url

    configure_logs("text")
    service = service_url(None, url)
    if service is None:
        why = "name the service to record to: --url, PENSTOCK_URL or `penstock login`"
        raise InvalidInput(what="penstock record", why=why)
    plan = ProxyPlan(
        upstream=_upstream(upstream),
        engine=None if engine == "auto" else EngineKind(engine),
        labels=Labels(project=project, checkpoint=checkpoint, consent=consent),
        serving_state=follow / "state.json" if follow else None,
        sampling={} if temperature is None else {"temperature": temperature},
    )
    bound = listen(host, port)
    address, base = bound.getsockname()[0], listening_url(bound)

    def ready() -> None:
        if json:
            show_json_line({"url": base, "upstream": upstream, "service": service})
        else:
            show_text(f"Recording on {base}: an agent's base URL is {base}/s/SESSION/v1")

    if not address.startswith(("127.", "::1")):
        say(f"{base} is open to others: whoever reaches it reaches the upstream")
    recording = RecordingPlan(
        service, service_key(service), str(spool.absolute()) if spool else None, _digest(tokenizer)
    )
    counts = serve_proxy(plan, recording, bound, ready)
    say(f"{counts['calls']} calls passed, {counts['unrecorded']} of them unrecorded")


def _upstream(text: str) -> "HttpAddress":
    from penstock.backends.http.address import HttpAddress

    address = HttpAddress.of(text, "--upstream")
    if address.login is not None or address.query or address.fragment:
        why = "it has a login, a query or a fragment; agents send their own keys"
        raise InvalidInput(what="--upstream", why=why)
    path = address.path.rstrip("/").removesuffix("/v1")  # the end of OpenAI clients' base URLs
    return replace(address, path=path)


def _digest(tokenizer: Path | None) -> str | None:
    if tokenizer is None:
        return None
    try:
        return hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The tokenizer {tokenizer}", why=why) from error
