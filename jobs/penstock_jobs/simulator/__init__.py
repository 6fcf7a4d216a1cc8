"""Simulated production with known truth: users, an agent, files, and the fates of edits."""
