"""Channels: promotion, rollback, their history, and the notices of each change."""
