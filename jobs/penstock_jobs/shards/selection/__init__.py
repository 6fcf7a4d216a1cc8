"""Selection of a shard's sessions: facts, rewards, plan and advantages."""
