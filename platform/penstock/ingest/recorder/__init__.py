"""Recording of a live agent: it imports the standard library alone, and never stops the agent."""
