"""Simulated production whose truth is known: users, an agent, files, and what became of them."""
