"""What the tests of jobs do with buckets."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from penstock.errors import InvalidInput
from penstock.lake.bucket_jobs import Parameters
from penstock.lake.buckets import Bucket, read_bucket
from penstock.lake.lake import Lake


def count_sessions(lake: Lake, bucket: Bucket, _parameters: Parameters) -> dict[str, int]:
    rows = read_bucket(lake, bucket, ["tenant", "session_id"])
    sessions = [f"{one['tenant']}/{one['session_id']}" for one in rows.to_pylist()]
    return {session: sessions.count(session) for session in sorted(set(sessions))}


def fail_at(lake: Lake, bucket: Bucket, parameters: Parameters) -> dict[str, int]:
    """Leaves a mark each time, and refuses one bucket until there is a file `repaired`."""
    directory = Path(parameters["directory"])
    with (directory / "begun").open("a") as marks:
        marks.write(f"{bucket.number}\n")
    if bucket.number == parameters["bucket"] and not (directory / "repaired").exists():
        raise InvalidInput(what=f"Bucket {bucket.number}", why="it is not repaired")
    return count_sessions(lake, bucket, parameters)


def kill_caller(lake: Lake, bucket: Bucket, parameters: Parameters) -> dict[str, int]:
    """As `fail_at`, but inline and with a process that is killed."""
    try:
        return fail_at(lake, bucket, parameters)
    except InvalidInput:
        os.kill(os.getpid(), signal.SIGKILL)
        raise


def say_too_much(_lake: Lake, _bucket: Bucket, parameters: Parameters) -> Any:
    return "x" * int(parameters["bytes"])


def say_no_json(_lake: Lake, _bucket: Bucket, _parameters: Parameters) -> Any:
    return object()


def count_when_told(lake: Lake, bucket: Bucket, parameters: Parameters) -> dict[str, int]:
    """On Ray: marks the node that it is on, and waits for a file `go`."""
    import ray

    directory = Path(parameters["directory"])
    node = ray.get_runtime_context().get_node_id()
    (directory / "marks" / f"{node}-{bucket.number}-{os.getpid()}").touch()
    while not (directory / "go").exists():
        time.sleep(0.01)
    return count_sessions(lake, bucket, parameters)
