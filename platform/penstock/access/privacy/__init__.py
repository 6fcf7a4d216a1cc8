"""Privacy: consent, erasure with tombstones, and retention."""
