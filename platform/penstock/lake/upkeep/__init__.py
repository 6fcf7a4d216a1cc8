"""Keeping the lake in shape: merges, rewrites, checks, backups, and the rounds that run them."""
