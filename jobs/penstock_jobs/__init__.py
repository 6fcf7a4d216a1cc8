"""Jobs over the lake: rewards, shards, benchmarks, importers, the loop, sessions, the simulator."""
