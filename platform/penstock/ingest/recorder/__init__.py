"""Recording of a live agent. It imports only the standard library, and never stops the agent."""
