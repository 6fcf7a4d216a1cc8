"""Model versions: digests, parents, lineage, and what they scored at which suite."""
