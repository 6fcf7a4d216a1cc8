"""Shards: from what a recipe asks for to files that a trainer reads."""
