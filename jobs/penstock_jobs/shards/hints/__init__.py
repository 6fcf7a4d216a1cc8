"""Hints for teachers."""
