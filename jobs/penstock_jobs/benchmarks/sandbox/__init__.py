"""Sandboxes, in which an attempt's agent and then its check run."""
