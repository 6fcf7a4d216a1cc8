"""The server of a checkpoint while a bench attempts its suites, by the command of a loop file."""

import os
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from math import inf

from penstock.backends.execution.guarded_process import ProcessEnd, run_guarded
from penstock.backends.http.address import HttpAddress
from penstock.backends.http.client import HttpClient
from penstock.core.errors import PenstockError
from penstock.core.files import SHARED_MODE, make_directory, relative_name
from penstock.core.settings import ENVIRONMENT_PREFIX
from penstock.registry.checkpoints.digests import is_path, path_of
from penstock.registry.checkpoints.registration import find
from penstock_jobs.loop.stages import StageContext
from penstock_jobs.loop.trainers import ANSWER_BYTES_MAX, TrainerFolders

_HOST = "127.0.0.1"


class ServingFailed(PenstockError):
    """The command of [serving] does not serve {checkpoint}: {why}. The end of its output, from
    {log}: {output}"""


class CheckpointServer:
    """A server of one checkpoint, from the first call of `address` until `close`.

    Its process group ends there, with the claim of the stage, and with the runner."""

    def __init__(self, context: StageContext, checkpoint: str) -> None:
        self.context, self.checkpoint = context, checkpoint
        folders = context.lake.settings, context.loop, context.tenant, context.cycle.number
        name = f"serving-{context.claim.epoch:03d}-{relative_name(checkpoint)}.log"
        self._log = TrainerFolders.of(*folders).cycle / name
        self._thread = ThreadPoolExecutor(1, "serving")
        self._running: Future[ProcessEnd] | None = None
        self._unwanted = False
        self._port = 0

    def close(self) -> None:
        self._unwanted = True
        self._thread.shutdown()

    def address(self) -> str:
        """Start the server unless it runs. Raises ServingFailed, StageLost."""
        if self._running is None:
            self._running = self._start()
            self._await_ready(self._running)
        return f"http://{_HOST}:{self._port}/v1"

    def check(self) -> None:
        """Raise ServingFailed or StageLost if an attempt may have met no server."""
        if self.context.claim.lost.is_set():
            raise self.context.claim.gone()
        if self._running is not None:
            try:
                with suppress(TimeoutError):  # it is busy
                    socket.create_connection((_HOST, self._port), timeout=1.0).close()
            except OSError as error:
                raise self._failed(self._running, f"it cannot be reached: {error}") from error

    def _start(self) -> Future[ProcessEnd]:
        context, loop = self.context, self.context.loop
        assert loop.serving is not None
        checkpoint = find(context.database, context.tenant, self.checkpoint)
        with socket.create_server((_HOST, 0)) as free:
            self._port = free.getsockname()[1]
        uri = str(path_of(checkpoint.uri)) if is_path(checkpoint.uri) else checkpoint.uri
        names = {"checkpoint": checkpoint.name, "uri": uri, "port": str(self._port)}
        told = {name: str(getattr(checkpoint, name)) for name in ("digest", "form")}
        told |= {"checkpoint": checkpoint.name, "data": str(context.lake.settings.data)}
        told |= {"loop": loop.name, "cycle": str(context.cycle.number)}
        variables = {f"{ENVIRONMENT_PREFIX}{name.upper()}": fact for name, fact in told.items()}
        make_directory(self._log.parent, SHARED_MODE)
        return self._thread.submit(
            run_guarded,
            loop.here(loop.serving.command, **names),
            environment=os.environ | variables,
            seconds_max=inf,
            cancelled=lambda: self._unwanted or context.claim.lost.is_set(),
            directory=loop.directory,
            log=self._log,
            grace_seconds=5.0,
        )

    def _await_ready(self, running: Future[ProcessEnd]) -> None:
        claim, serving = self.context.claim, self.context.loop.serving
        assert serving is not None
        place = HttpAddress.of(f"http://{_HOST}:{self._port}{serving.ready}", "ready of [serving]")
        client = HttpClient(place, egress=None, seconds_max=10.0, bytes_max=ANSWER_BYTES_MAX)
        deadline = time.monotonic() + serving.limit_s
        while (answer := client.request("GET", {})).status != 200 or running.done():
            if claim.lost.wait(0.1):
                raise claim.gone()
            if running.done() or time.monotonic() >= deadline:
                last = f"{place.text} answered {answer.status or answer.problem}"
                why = f"it was not ready after {serving.limit_s} s, its `limit`: {last}"
                raise self._failed(running, why)

    def _failed(self, running: Future[ProcessEnd], why: str) -> ServingFailed:
        wait([running], 1.0)  # a server that ends by itself has a status
        self._unwanted = True
        end = running.result()
        why = why if end.status is None else f"it ended with status {end.status}"
        facts = {"checkpoint": self.checkpoint, "log": self._log, "output": end.output}
        return ServingFailed(why=why, **facts)
