"""What the list of commands says of each: known without loading its room, so that the list is there
at once. A test compares it with what the commands say of themselves."""

SUMMARIES = {
    "bench": "Benchmarks: run suites in isolation, bring results, compare checkpoints.",
    "canary": "A checkpoint on a part of the traffic: look at it, give it more, or take it back.",
    "channels": "What the serving fleet watches: each channel points at one checkpoint.",
    "checkpoints": "Model versions: their digests, where they lie, what they came from.",
    "config": "Every setting, its value and where it came from.",
    "db": "The metadata database.",
    "demo": "Watch the whole loop on simulated production traffic, in six cycles.",
    "gate": "What a checkpoint has to show before a channel may point at it.",
    "import": "Take events from files.",
    "keys": "Keys for the HTTP service.",
    "lake": "The files of the lake.",
    "ledger": "What came in, per source and hour, and what became of it.",
    "loop": "From sessions to a checkpoint that serves, again and again, by a loop file.",
    "promote": "Point a channel at a checkpoint that passes the gate.",
    "query": "Ask the lake with SQL; events that are not in a segment yet are included.",
    "quotas": "What each tenant may use.",
    "rejected": "Rejected lines: why, and sending them again.",
    "rewards": "What sessions were worth, by what users did next.",
    "rollback": "Take a channel back to the last good checkpoint, and pin it there.",
    "serve": "Take events in and answer queries, until SIGTERM or Ctrl-C.",
    "shards": "Training shards, built from queries.",
    "simulate": "Simulate sessions whose truth is known, and send their events.",
    "snapshots": "Names for the lake as it was: `query --as-of NAME` reads the same rows for ever.",
    "webhooks": "Addresses that are told of changes of channels.",
}
