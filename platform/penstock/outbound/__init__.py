"""Servers that are not ours: where they are, and how one of them is asked."""
