"""Offline verdicts beside what production did: whether a suite foretells its users."""
