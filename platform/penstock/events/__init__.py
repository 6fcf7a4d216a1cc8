"""What an event is: its fields, its payload by type, its identity; and how events are checked
and packed into values of the event log. Nothing here does input or output."""
