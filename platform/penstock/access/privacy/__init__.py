"""Whose data it is: erasure, its tombstones, and what is kept how long."""
