"""The audit: who did what. It is append-only and chained by hashes."""
