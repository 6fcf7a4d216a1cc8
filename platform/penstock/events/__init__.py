"""Events: their fields, their payloads by type and their identity; how they are checked, and packed
into values of the event log. Nothing here does input or output."""
