"""What the user wrote after the agent acted, and what it says about the agent's work."""
