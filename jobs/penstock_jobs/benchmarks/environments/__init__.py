"""Environments: how a task's tree becomes runnable, and the layers that are kept of it."""
