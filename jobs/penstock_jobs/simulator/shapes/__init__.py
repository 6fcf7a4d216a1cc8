"""What the grammars are made of: the shapes of code in four languages, and of prose."""
