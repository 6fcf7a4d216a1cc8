"""Which sessions become a shard: facts, plan, advantages, and why others are left out."""
