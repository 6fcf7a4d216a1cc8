"""Exporters: a module for each target, found by `penstock_jobs.shards.export`."""
