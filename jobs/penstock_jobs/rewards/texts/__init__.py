"""Pure comparison of texts: what is alike, what went and came, and who wrote what is there."""
