"""Every limit and address, named with its unit. The only reader of environment and files.

`penstock.toml` in the data directory, then `PENSTOCK_*` in the environment, then flags:
the later wins.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from penstock.errors import SettingInvalid

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

ENVIRONMENT_PREFIX = "PENSTOCK_"
#: Variables that begin so and are none: for clients, and for programs of benchmarks and loops.
NO_SETTINGS = frozenset({
    "data", "key", "url",
    "attempt", "check", "checkpoint", "edited", "model_url", "prompt_file", "report", "result",
    "seed", "suite", "task",
    "answer", "cycle", "lake", "loop", "output", "parent", "parent_digest", "parent_uri", "shard",
    "shard_folder", "work",
    "apply", "chain", "channel", "digest", "folder", "form", "loaded", "part", "replica",
    "version",
})  # fmt: skip
FILE_NAME = "penstock.toml"
DATA_DEFAULT = "penstock-data"


def _setting(
    default: Any, meaning: str, minimum: float | None = None, *, secret: bool = False
) -> Any:
    facts = {"meaning": meaning, "minimum": minimum, "secret": secret}
    return field(default=default, repr=not secret, metadata=facts)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one process runs with. `data` is the directory of the embedded default."""

    data: Path

    database_url: str = _setting("", "metadata database; default sqlite:///DIR/penstock.db")
    log_url: str = _setting("", "event log; default local:DIR/log")
    store_url: str = _setting("", "object store of the lake; default file://DIR/lake")

    body_bytes_max: int = _setting(32 * MIB, "request body as sent", 1)
    body_decoded_bytes_max: int = _setting(64 * MIB, "request body after decompression", 1)
    event_bytes_max: int = _setting(8 * MIB, "one event", 1)
    inflight_bytes_max: int = _setting(128 * MIB, "bodies and events not yet on disk, all keys", 1)
    tenant_inflight_bytes_max: int = _setting(64 * MIB, "the same for one tenant", 1)

    log_partitions: int = _setting(
        1, "partitions of a new log; a local one keeps them, a topic may get more", 1
    )
    log_file_bytes_max: int = _setting(
        64 * MIB, "a file of the local log before the next begins", 1
    )
    log_bytes_max: int = _setting(8 * GIB, "events waiting in the local log before 503", 1)
    log_block_bytes_max: int = _setting(4 * MIB, "events that share one fsync and checksum", 1)
    log_request_seconds_max: float = _setting(10.0, "wait for an answer of Kafka", 0.1)
    log_refresh_seconds: float = _setting(
        5.0, "how soon partitions that were added to a topic are seen", 0
    )
    disk_reserve_bytes: int = _setting(256 * MIB, "disk kept free for the writer: below it 503", 0)

    flush_rows_max: int = _setting(50_000, "events in a new segment", 1)
    flush_bytes_max: int = _setting(32 * MIB, "bytes of events in a new segment", 1)
    flush_seconds_max: float = _setting(2.0, "age of the oldest event before a flush", 0)
    row_group_rows_max: int = _setting(10_000, "rows in a Parquet row group", 1)
    row_group_bytes_max: int = _setting(16 * MIB, "bytes in a row group before compression", 1)
    known_bytes_max: int = _setting(128 * MIB, "memory for the identities of recent sessions", 1)
    lease_seconds: float = _setting(30.0, "a writer that is silent so long loses its partition", 1)
    poll_seconds: float = _setting(0.05, "how often the writer looks for events of others", 0.001)
    retry_seconds_max: float = _setting(5.0, "longest wait between tries when something is down", 0)
    stuck_seconds_max: float = _setting(30.0, "no progress for so long and /readyz says 503", 1)

    rejected_ratio_max: float = _setting(0.5, "share of rejected lines that stops the writer", 0)
    rejected_window_lines: int = _setting(10_000, "lines over which that share is taken", 1)
    rejected_line_bytes_max: int = _setting(64 * KIB, "what is kept of a rejected line", 1)

    store_connect_seconds_max: float = _setting(
        5.0, "wait for a connection to the object store", 0.1
    )
    store_silence_seconds_max: float = _setting(
        20.0, "an object store that sends nothing for so long is given up", 1
    )
    store_attempts_max: int = _setting(5, "tries of one request to the object store", 1)
    store_tails_bytes_max: int = _setting(
        32 * MIB, "memory for the ends of files that queries read from S3", 0
    )

    compaction_segments_min: int = _setting(8, "small segments that are worth a merge", 2)
    compaction_bytes_target: int = _setting(128 * MIB, "segments of this size are left alone", 1)
    compaction_memory_bytes_max: int = _setting(256 * MIB, "memory of a merge", 64 * MIB)
    rewards_bucket_bytes_target: int = _setting(
        8 * MIB, "bytes of segments whose sessions' rewards are computed at once", 1
    )
    rewards_file_rows_max: int = _setting(1_000_000, "rows of a merged file of rewards", 1)
    upkeep_seconds: float = _setting(15.0, "pause between rounds of compaction and collection", 0)
    collection_grace_seconds: float = _setting(600.0, "a removed file is kept so long", 0)
    reader_lease_seconds: float = _setting(900.0, "a query's claim on its files", 1)

    query_memory_bytes_max: int = _setting(2 * GIB, "memory of one query", 16 * MIB)
    query_seconds_max: float = _setting(60.0, "time of one query", 0.001)
    query_threads: int = _setting(2, "threads of one query", 1)
    query_answer_bytes_max: int = _setting(64 * MIB, "answer of POST /v1/query", 1)
    queries_max: int = _setting(4, "queries over HTTP at the same time; others wait", 1)

    shard_part_bytes_target: int = _setting(
        512 * MIB, "bytes of a part of a shard before compression, to the end of a group", 1
    )
    shard_part_rows_target: int = _setting(200_000, "rows of a part of a shard, likewise", 1)
    shard_row_group_bytes_max: int = _setting(
        4 * MIB, "bytes in a row group of a shard before compression; at most 64 MiB", 1
    )
    shard_cache_bytes_max: int = _setting(
        64 * GIB, "local copies of shard files; the least recently used are deleted", 0
    )
    loader_batches_max: int = _setting(2, "batches that a reader of shards makes ahead", 1)
    loader_threads: int = _setting(2, "threads of a reader of shards that decode", 1)

    canary_look_seconds: float = _setting(60.0, "pause between two looks at live metrics", 0)
    canary_settle_seconds: float = _setting(
        60.0, "sessions that begin so soon after a change of the split do not count", 0
    )
    canary_quiet_seconds: float = _setting(
        3_600.0, "a session without an end that was quiet so long is over", 0
    )
    canary_sessions_min: int = _setting(
        30, "sessions of each checkpoint that a canary needs before it gets more traffic", 1
    )
    canary_unknown_difference_max: float = _setting(
        0.1,
        "difference of the shares of sessions that never say anything, above which none pass",
        0,
    )

    benchmark_tries_max: int = _setting(
        3, "tries of an attempt that errs for reasons outside the model", 1
    )
    benchmark_retry_seconds: float = _setting(
        1.0, "pause before its second try; each further pause is twice as long", 0
    )
    benchmark_errors_max: int = _setting(
        20, "attempts one after another that say nothing about the model, before a run stops", 1
    )
    benchmark_output_bytes_max: int = _setting(
        64 * KIB, "what is kept of the output of an agent or a check; its middle is left out", 1
    )
    benchmark_report_bytes_max: int = _setting(256 * KIB, "report of an agent", 1)
    benchmark_task_bytes_max: int = _setting(
        256 * MIB, "the tree, the check or the solution of a task", 1
    )

    loop_lease_seconds: float = _setting(
        30.0, "a runner of a loop that is silent so long loses its stage", 0.1
    )
    loop_poll_seconds: float = _setting(
        10.0, "how often a runner of a loop looks whether what it waits for is there", 0.01
    )
    loop_answer_bytes_max: int = _setting(64 * KIB, "answer of a trainer", 1)
    loop_trainer_answer_seconds: float = _setting(
        60.0, "an answer of a trainer that is asked by HTTP", 0.1
    )
    loop_trainer_pause_seconds_max: float = _setting(
        300.0,
        "longest pause until a trainer is asked again by HTTP, also where it asks for more",
        0,
    )
    loop_trainer_silence_seconds: float = _setting(
        600.0, "a trainer that no HTTP request reaches for so long has failed", 0
    )

    executor: str = _setting("inline", "heavy jobs: inline, processes or ray://HOST:PORT")
    executor_workers: int = _setting(0, "worker processes; 0 is one for each core", 0)
    executor_inflight_max: int = _setting(64, "tasks of a run given to Ray and not back yet", 1)
    executor_attempts_max: int = _setting(3, "tries of a task whose worker is lost", 1)
    executor_task_memory_bytes: int = _setting(1 * GIB, "memory that Ray keeps for a task", 0)
    bucket_bytes_target: int = _setting(64 * MIB, "bytes of segments in a bucket of a job", 1)
    job_result_bytes_max: int = _setting(64 * KIB, "what a job returns for one bucket", 1)

    judge_url: str = _setting(
        "", "OpenAI-compatible address that judges follow-ups, up to /v1; empty: none is asked"
    )
    judge_model: str = _setting("", "model that is asked there")
    judge_key: str = _setting("", "key that is sent there; never shown", secret=True)
    judge_requests_max: int = _setting(
        10_000, "requests to the judge in one run of rewards, tries included", 0
    )
    judge_tokens_max: int = _setting(
        10_000_000, "tokens of questions and answers in one run of rewards", 0
    )
    judge_inflight_max: int = _setting(8, "requests of a process to the judge at the same time", 1)
    judge_seconds_max: float = _setting(60.0, "wait for an answer of the judge", 0.1)
    judge_attempts_max: int = _setting(4, "tries of one request to the judge", 1)
    judge_message_chars_max: int = _setting(
        8_000, "characters of a message that the judge is shown; its middle is left out", 100
    )

    channel_poll_seconds: float = _setting(
        0.02, "how often a process looks for changes of channels that somebody waits for", 0.001
    )
    channel_wait_seconds_max: float = _setting(
        60.0, "longest wait of a request for a change of a channel", 0
    )
    channel_waiters_max: int = _setting(
        1_000, "requests of a process that wait for changes of channels", 0
    )
    notice_topic_url: str = _setting(
        "",
        "topic that is told of each change of a channel, kafka://HOST:PORT/TOPIC; empty: none",
    )
    delivery_poll_seconds: float = _setting(
        0.05, "how often a deliverer looks for changes that webhooks or the topic wait for", 0.001
    )
    delivery_lease_seconds: float = _setting(
        10.0, "a deliverer that is silent so long loses the webhook that it was telling", 0.1
    )
    delivery_pause_seconds_max: float = _setting(
        300.0, "longest pause between tries to tell a webhook or the topic", 0
    )
    deliveries_max: int = _setting(8, "webhooks that a process tells at the same time", 1)
    webhook_seconds_max: float = _setting(10.0, "time of one request to a webhook", 0.1)

    follow_command_seconds_max: float = _setting(
        1_800.0, "time of one run of the command that loads a checkpoint", 0.1
    )
    follow_retry_seconds: float = _setting(
        2.0,
        "pause before a checkpoint that was not loaded is tried again; each further pause is "
        "twice as long",
        0.01,
    )
    follow_retry_seconds_max: float = _setting(300.0, "longest of these pauses", 0.01)
    follow_check_seconds: float = _setting(
        30.0, "how often a sidecar asks whether its engine still has what was loaded", 0.01
    )
    follow_copies_max: int = _setting(
        3, "copies of checkpoints that a sidecar keeps beside those that it loaded last", 0
    )
    replica_report_seconds: float = _setting(
        10.0, "how often a sidecar says what its replica has loaded", 0.01
    )
    replica_silent_seconds: float = _setting(
        60.0, "a replica that nobody heard of for so long is silent", 0.01
    )
    replica_forget_seconds: float = _setting(
        3_600.0, "a replica that nobody heard of for so long is forgotten", 0.01
    )
    replicas_max: int = _setting(2_000, "replicas of a channel", 1)

    results_document_bytes_max: int = _setting(
        512 * MIB, "one document of benchmark results of others, unpacked", 1
    )
    results_unpacked_bytes_max: int = _setting(
        64 * GIB, "what one archive of benchmark results of others holds, unpacked", 1
    )
    results_attempts_max: int = _setting(
        1_000_000, "attempts in one import of benchmark results", 1
    )

    keys_refresh_seconds: float = _setting(5.0, "how long a revoked key may still be taken", 0.1)
    database_lock_seconds_max: float = _setting(5.0, "wait for another's lock on the database", 0)
    database_statement_seconds_max: float = _setting(
        30.0, "one statement on PostgreSQL, or a pause inside a transaction", 0.001
    )
    database_connect_seconds_max: float = _setting(
        10.0, "wait for a connection to the database", 0.001
    )
    database_connections_max: int = _setting(15, "connections of a process to the database", 1)
    shutdown_seconds_max: float = _setting(20.0, "time to flush after a signal to stop", 0)
    log_format: str = _setting("text", "log lines as text or json")


@dataclass(frozen=True)
class Resolved:
    """A setting's value and the place that gave it."""

    name: str
    value: Any
    origin: str
    meaning: str
    secret: bool = False

    @property
    def shown(self) -> Any:
        """The value as it may be shown."""
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
    """Settings from file, environment and flags. Raises SettingInvalid."""
    resolved = resolve(data, environment, flags)
    return Settings(**{one.name: one.value for one in resolved})


def resolve(
    data: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> list[Resolved]:
    """Each setting with its origin, in the order of the class."""
    environment = os.environ if environment is None else environment
    directory, origin = _data_directory(data, environment)
    layers = [
        (f"{directory / FILE_NAME}", _from_file(directory / FILE_NAME)),
        ("the environment", _from_environment(environment)),
        ("a flag", {name: v for name, v in (flags or {}).items() if v is not None}),
    ]
    found = {"data": Resolved("data", directory, origin, "directory of the embedded default")}
    for one in fields(Settings):
        if one.name == "data":
            continue
        value, origin = _default_of(one.name, one.default, directory), "default"
        for name, layer in layers:
            if one.name in layer:
                value, origin = _checked(one, layer[one.name], name), name
        facts = one.metadata["meaning"], one.metadata["secret"]
        found[one.name] = Resolved(one.name, value, origin, *facts)
    _check_relations(found)
    return list(found.values())


_PASSWORD = re.compile(r"(?<=://)([^:@?/]*):.*@")
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&]*(?:secret|pass|token|key|credential)[^=&]*)=[^&]*", re.IGNORECASE
)


def without_secrets(url: str) -> str:
    """An address as it may be shown: passwords, and parameters that sound like secrets, masked."""
    return _SECRET_PARAMETER.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", url))


def _data_directory(data: Path | str | None, environment: Mapping[str, str]) -> tuple[Path, str]:
    if data is not None:
        directory, origin = Path(data).absolute(), "a flag"
    elif named := environment.get(f"{ENVIRONMENT_PREFIX}DATA"):
        directory, origin = Path(named).absolute(), "the environment"
    else:
        directory, origin = Path(DATA_DEFAULT).absolute(), "default"
    if directory.exists() and not directory.is_dir():
        raise SettingInvalid(name="data", origin=origin, why=f"{directory} is not a directory")
    return directory, origin


def _default_of(name: str, default: Any, directory: Path) -> Any:
    addresses = {
        "database_url": f"sqlite:///{directory}/penstock.db",
        "log_url": f"local:{directory}/log",
        "store_url": f"file://{directory}/lake",
    }
    return addresses.get(name, default)


def _from_file(path: Path) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingInvalid(name="(the whole file)", origin=path, why=str(error)) from None
    for name in found:
        _refuse_unknown(name, str(path))
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for variable, value in environment.items():
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if not variable.startswith(ENVIRONMENT_PREFIX) or name in NO_SETTINGS:
            continue
        _refuse_unknown(name, "the environment")
        found[name] = value
    return found


def _refuse_unknown(name: str, origin: str) -> None:
    known = [one.name for one in fields(Settings) if one.name != "data"]
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}" if near else ""
        raise SettingInvalid(name=name, origin=origin, why=f"there is no such setting{hint}")


def _checked(one: Any, value: object, origin: str) -> Any:
    kind = type(one.default)
    try:
        if kind is str:
            converted: Any = _text(value)
        else:
            converted = kind(value)
            if kind is int and isinstance(value, float) and value != converted:
                raise ValueError
    except (TypeError, ValueError):
        said = "the value" if one.metadata["secret"] else repr(value)
        raise SettingInvalid(
            name=one.name, origin=origin, why=f"{said} is not a {_KINDS[kind]}"
        ) from None
    minimum = one.metadata["minimum"]
    if minimum is not None and not converted >= minimum:
        raise SettingInvalid(name=one.name, origin=origin, why=f"{value} is below {minimum}")
    return converted


_KINDS = {int: "whole number", float: "number", str: "text"}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _check_relations(found: Mapping[str, Resolved]) -> None:
    """Limits that only make sense together."""
    smaller_first = [
        ("event_bytes_max", "body_decoded_bytes_max"),
        ("tenant_inflight_bytes_max", "inflight_bytes_max"),
        ("body_bytes_max", "tenant_inflight_bytes_max"),
        ("body_decoded_bytes_max", "tenant_inflight_bytes_max"),
        ("log_block_bytes_max", "log_file_bytes_max"),
        ("log_file_bytes_max", "log_bytes_max"),
        ("flush_seconds_max", "lease_seconds"),
        ("replica_silent_seconds", "replica_forget_seconds"),
    ]
    for small, large in smaller_first:
        if found[small].value > found[large].value:
            raise SettingInvalid(
                name=small,
                origin=found[small].origin,
                why=f"{found[small].value} is over {large}, which is {found[large].value}",
            )
    if found["log_format"].value not in ("text", "json"):
        raise SettingInvalid(
            name="log_format", origin=found["log_format"].origin, why="it is text or json"
        )
    if found["judge_url"].value and not found["judge_model"].value:
        raise SettingInvalid(
            name="judge_model",
            origin=found["judge_model"].origin,
            why="there is a judge_url, and no model to ask there",
        )
