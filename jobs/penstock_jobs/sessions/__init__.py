"""Sessions as people read them: the list, each conversation, its rewards and their reasons."""
