"""The two kinds of trainer: a command, and an address that is asked by HTTP."""
