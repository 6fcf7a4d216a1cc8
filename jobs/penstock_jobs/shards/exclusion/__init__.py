"""Exclusions: which chosen sessions a shard leaves out, and why. A file each, all pure.

Each takes facts about sessions and says `Found`: of those that are left out, the reason. A session
has one reason, the first in the order of the files here: consent, copies, contamination,
staleness, near_duplicates, caps. Caps come last, so that nobody's share is used up by what is left
out anyway.
"""
