"""Survival: how much of what agents wrote still stands."""
