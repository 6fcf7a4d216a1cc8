"""Rows of a shard from sessions: branches, tokens, credit and columns."""
