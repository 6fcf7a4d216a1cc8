"""Encryption at rest: files of the lake sealed with a key of their tenant."""
