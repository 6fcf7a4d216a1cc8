"""Who did what: append-only, and chained by hashes."""
