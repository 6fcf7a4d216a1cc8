"""The sidecar of a serving engine: it follows a channel, fetches what that points at, and has it
loaded."""
