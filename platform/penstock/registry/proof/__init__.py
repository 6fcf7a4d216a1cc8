"""Proofs: the origin and history of a checkpoint in one signed document (docs/promote.md)."""
