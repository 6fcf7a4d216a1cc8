"""`penstock checkpoints lineage`: the one command on checkpoints that also asks the channels."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_existing
from penstock.terminal import options
from penstock.terminal.options import CheckpointName
from penstock.terminal.output import facts, say, show_json, show_table, time_of

if TYPE_CHECKING:
    from penstock.channels.channel import ServingChannel
    from penstock.checkpoints.lineage import Lineage


def lineage(
    name: CheckpointName,
    data: options.Data = None,
    tenant: options.Tenant = TENANT_DEFAULT,
    json: options.Json = False,
) -> None:
    """What a checkpoint came from and what came of it: parents, children, the shards that trained
    it and its parents, and the sessions in them that should not be there any more.

    Example: penstock checkpoints lineage ckpt-0012
    """
    from penstock.channels.channel import serving_channels
    from penstock.checkpoints.lineage import lineage

    with open_existing(data) as lake:
        line = lineage(lake.database, tenant, name)
        channels = serving_channels(lake.database, tenant, line.checkpoint.name)
    if json:
        show_json(_document(line, channels))
        return
    show_table(["what", "which", "more"], _rows(line, channels))
    if line.marks:
        sessions = len({mark.session_id for mark in line.marks})
        shards = len({mark.shard for mark in line.marks})
        say(f"trained on {sessions} sessions, in {shards} shards, that should be there no more")


def _document(line: "Lineage", channels: "list[ServingChannel]") -> dict[str, Any]:
    return {
        "checkpoint": facts(line.checkpoint),
        "parents": [facts(parent) for parent in line.parents],
        "children": line.children,
        "shards": [facts(shard) for shard in line.shards],
        "marks": [facts(mark) for mark in line.marks],
        "channels": [facts(channel) for channel in channels],
        "moves": [facts(move) | {"at": time_of(move.at).isoformat()} for move in line.moves],
    }


def _rows(line: "Lineage", channels: "list[ServingChannel]") -> Iterator[list[object]]:
    subject = line.checkpoint
    yield ["checkpoint", subject.name, f"{subject.form}, {subject.state}"]
    for parent in line.parents:
        yield ["parent", parent.name, f"{parent.form}, {parent.state}"]
    for child in line.children:
        yield ["child", child, None]
    for channel in channels:
        yield ["serves", channel.channel, channel.arm]
    for shard in line.shards:
        yield ["shard", shard.name or shard.shard, f"of {shard.checkpoint}, {shard.shard}"]
    for mark in line.marks:
        yield ["marked", mark.session_id, f"{mark.reason}, in {mark.shard} of {mark.checkpoint}"]
