"""Shipped support for tests, the demo and the benchmark."""
