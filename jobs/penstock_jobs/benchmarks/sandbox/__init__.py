"""Where the programs of others run: the agent of an attempt, and then its check."""
