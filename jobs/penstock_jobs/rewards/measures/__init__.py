"""The rewards: pure functions over a bucket of sessions, whose docstrings are their pages."""
