"""Which model may serve, which one does, and who is told."""
