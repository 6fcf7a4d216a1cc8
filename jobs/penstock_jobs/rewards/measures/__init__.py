"""The shipped rewards: pure functions over a bucket. Their docstrings are their pages."""
