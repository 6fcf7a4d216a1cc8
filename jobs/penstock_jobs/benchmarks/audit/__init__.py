"""Audits of attempts: whether an agent looked up the answer instead of finding it."""
