"""What the list of commands says of each: known without loading its room, so that the list is there
at once. A test compares it with what the commands say of themselves."""

#: In the order of a user's work.
SUMMARIES = {
    "demo": "Watch the whole loop on simulated production traffic, in six cycles.",
    "examples": "Copy the examples: sessions, recipes, policies, suites, agents, hooks, trainers.",
    "serve": "Take events in and answer queries, until SIGTERM or Ctrl-C.",
    "login": "Keep the address of a service and a key for it: commands ask it from now on.",
    "logout": "Forget the service of `penstock login`, and its key.",
    "import": "Take sessions that agents keep, or events from files.",
    "record": "Pass requests of agents on to a model's server, and record them, until SIGTERM or "
    "Ctrl-C.",
    "observe": "Look at files that sessions edited, and tell what became of them.",
    "simulate": "Simulate sessions whose truth is known, and send their events.",
    "query": "Ask the lake with SQL; events that are not in a segment yet are included.",
    "snapshots": "Names for the lake as it was: `query --as-of NAME` reads the same rows for ever.",
    "sessions": "Sessions, to be looked through and read.",
    "events": "What an event is.",
    "rejected": "Rejected lines: why, and sending them again.",
    "ledger": "What came in, per source and hour, and what became of it.",
    "rewards": "What sessions were worth, by what users did next.",
    "shards": "Training shards, built from queries.",
    "checkpoints": "Model versions: their digests, where they lie, what they came from.",
    "bench": "Benchmarks: run suites in isolation, bring results, compare checkpoints.",
    "gate": "What a checkpoint has to show before a channel may point at it.",
    "promote": "Point a channel at a checkpoint that passes the gate.",
    "rollback": "Take a channel back to the last good checkpoint, and pin it there.",
    "canary": "A checkpoint on a part of the traffic: look at it, give it more, or take it back.",
    "channels": "What the serving fleet watches: each channel points at one checkpoint.",
    "webhooks": "Addresses that are told of changes of channels.",
    "loop": "From sessions to a checkpoint that serves, again and again, by a loop file.",
    "keys": "Keys for the HTTP service.",
    "quotas": "What each tenant may use.",
    "audit": "Who did what, and whether anybody changed that.",
    "redaction": "What is masked in events before they are kept.",
    "consent": "Whether what users, projects and sessions send may be trained on.",
    "erase": "Erase what a user, a session, a project or a tenant sent, and all that was made "
    "of it.",
    "retention": "How long what is kept.",
    "prove": "One signed document from consent to replicas, which anybody verifies without "
    "Penstock.",
    "lake": "The files of the lake.",
    "iceberg": "Tables of Apache Iceberg over the lake.",
    "db": "The metadata database.",
    "backup": "Copy an embedded lake as it is now, while it is served.",
    "restore": "Make a lake of a backup, in an empty data directory.",
    "config": "Every setting, its value and where it came from.",
}
