"""Upkeep of the lake: merges, rewrites, checks, backups, and the rounds that run them."""
