"""The gate: decides whether a channel may point at a checkpoint."""
