"""Sessions as conversations: messages and model calls with their events."""
