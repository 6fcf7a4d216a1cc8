"""A proxy before an engine or a provider, that records what passes through it."""
