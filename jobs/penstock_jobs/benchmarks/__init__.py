"""Benchmarks: suites of tasks, and the scores of checkpoints."""
