"""What runs over the lake: rewards, shards, benchmarks, the loop, upkeep."""
