"""The console: the frame, signing in, and what the pages of all rooms share."""
