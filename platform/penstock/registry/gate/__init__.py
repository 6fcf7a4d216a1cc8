"""What a checkpoint has to show before a channel may point at it."""
