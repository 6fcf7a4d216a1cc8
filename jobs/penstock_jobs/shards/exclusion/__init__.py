"""Exclusion: which chosen sessions a shard leaves out, and why.

A file for each kind of reason, with a pure decision in it. A session has one reason, the first in
this order: consent, copies, contamination, staleness, near_duplicates, caps. Caps come last, so
that sessions that are left out anyway use up nobody's share. `decision` asks them in this order.
"""
