"""What a checkpoint was made of and went through, in one signed document: see docs/promote.md."""
