"""Where production points: promotion, rollback, their history, and everybody who is told."""
