"""Sessions as people read them: which there are, and what one was worth and why."""
