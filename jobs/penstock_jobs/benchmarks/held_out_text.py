"""Bits per byte: how well a checkpoint predicts the held-out files of a text shard.

The shard is a suite, and the files are its tasks. A file over several rows is read in parts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import log

import msgspec
import pyarrow.compute as pc

from penstock.backends.http.address import HttpAddress
from penstock.backends.http.client import HttpClient
from penstock.core.errors import InvalidInput
from penstock.lake.lake import Lake
from penstock.registry.checkpoints import attempts
from penstock.registry.checkpoints.attempts import Attempt
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite
from penstock.shards.manifest import read_rows, stored_shard
from penstock.shards.shard import RegisteredShard
from penstock_jobs.benchmarks.summary import CheckpointResults, results_of

_REQUESTS_AT_ONCE = 8
_SECONDS_MAX = 600.0


#: The bytes of a file, and its tokens in each of its rows.
HeldOutFile = tuple[int, list[list[int]]]


def measure_checkpoint(
    lake: Lake,
    shard: RegisteredShard,
    checkpoint: str,
    serving: str,
    follow: Callable[[int, int], None] = lambda _done, _of: None,
) -> CheckpointResults:
    """Record bits per byte of each file that has none yet. Raises InvalidInput, ShardDamaged."""
    address = HttpAddress.of(serving, "--serving").below("completions")
    files, database = held_out_files(lake, shard), lake.database
    place = shard.name, shard.id
    add_suite(database, shard.tenant, SuiteVersion(*place, tuple(map(SuiteTask, files))))
    scope = AttemptScope(shard.tenant, *place, checkpoint)
    for recorded in attempts.attempts_of(database, scope):
        if recorded.result.error is None:
            del files[recorded.result.task]
    run = attempts.begin_run(database, scope, source=serving, conditions={"shard": shard.id})
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        made = pool.map(partial(_measure, address), files, files.values())
        for done, attempt in enumerate(made, 1):
            with database.write() as connection:
                attempts.record_attempts(connection, scope, run, [attempt])
            follow(done, len(files))
    attempts.finish_run(database, scope, run)
    return results_of(database, scope)


def held_out_files(lake: Lake, shard: RegisteredShard) -> dict[str, HeldOutFile]:
    """Read the files of the evaluation side, by path and digest. Raises InvalidInput."""
    files: dict[str, HeldOutFile] = {}
    columns = ["split", "input_ids", "turn_spans", "documents"]
    for rows in read_rows(stored_shard(lake.store, shard.folder, shard.id), columns):
        for row in rows.filter(pc.equal(rows["split"], "eval")).to_pylist():
            for span, file in zip(row["turn_spans"], row["documents"] or (), strict=False):
                name = f"{file['path']} {file['sha256'][:16]}"[-255:]
                task = "".join(one if one.isprintable() else "?" for one in name)
                tokens = row["input_ids"][span["start"] : span["end"]]
                files.setdefault(task, (file["bytes"], []))[1].append(tokens)
    if not files:
        why = "it has no held-out files, which take [text] and [split] in its recipe"
        raise InvalidInput(what=f"The shard {shard.name}", why=why)
    return files


def _measure(address: HttpAddress, task: str, file: HeldOutFile) -> Attempt:
    size, parts = file
    separator, bits = parts[-1].pop(), 0.0
    for part in parts:
        question = {"prompt": [separator, *part], "max_tokens": 1, "prompt_logprobs": 0}
        client = HttpClient(address, seconds_max=_SECONDS_MAX, egress=None)
        headers = {"Content-Type": "application/json"}
        answer = client.request("POST", headers, msgspec.json.encode(question)).if_whole()
        try:
            told = answer.json()["choices"][0]["prompt_logprobs"][1:]
            pairs = zip(part, told, strict=True)
            bits -= sum(each[str(token)]["logprob"] for token, each in pairs) / log(2)
        except (LookupError, TypeError, ValueError):
            why = answer.problem or f"no prompt_logprobs in its answer of status {answer.status}"
            return Attempt(task=task, attempt=0, error=f"the engine: {why}")
    rate = bits / size
    facts = {"bits_per_byte": rate, "score": 2.0**-rate}  # the mean probability of a byte
    return Attempt(task=task, attempt=0, prompt_tokens=sum(map(len, parts)), **facts)
