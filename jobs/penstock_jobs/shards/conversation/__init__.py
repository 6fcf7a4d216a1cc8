"""A session as a conversation: messages and model calls, each of which knows its event."""
