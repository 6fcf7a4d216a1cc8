"""The terminal: options, answers as tables or JSON, progress, and Ctrl-C."""
