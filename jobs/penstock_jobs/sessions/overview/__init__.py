"""The first page of the console: whether the loop turns, and what needs a person."""
