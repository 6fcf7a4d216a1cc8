"""What all commands share: options, answers as tables or JSON, progress."""
