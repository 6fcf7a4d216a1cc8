"""The shipped exporters, found by `penstock_jobs.shards.export`."""
