"""What an event is: its envelope, its payload by type, its identity, and how it is read."""
