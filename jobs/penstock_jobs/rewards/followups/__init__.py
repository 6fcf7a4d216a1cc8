"""Follow-ups: what users write after the agent acted, and what it says about its work."""
