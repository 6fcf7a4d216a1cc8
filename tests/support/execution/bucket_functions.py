"""What tests do with buckets, here and on workers."""

import os
import time
from pathlib import Path

from penstock.lake.buckets import BucketTask, read_bucket
from penstock.lake.lake import Lake


def count_sessions(task: BucketTask) -> dict[str, int]:
    with Lake(task.settings) as lake:
        rows = read_bucket(lake, task.bucket, ["tenant", "session_id"])
    sessions = [f"{one['tenant']}/{one['session_id']}" for one in rows.to_pylist()]
    return {session: sessions.count(session) for session in sorted(set(sessions))}


def count_when_told(task: BucketTask) -> dict[str, int]:
    """On Ray: marks the node that it is on beside the lake, and waits for a file `go`."""
    import ray

    directory = Path(task.settings.data).parent
    node = ray.get_runtime_context().get_node_id()
    (directory / "marks" / f"{node}-{task.bucket.number}-{os.getpid()}").touch()
    while not (directory / "go").exists():
        time.sleep(0.01)
    return count_sessions(task)
