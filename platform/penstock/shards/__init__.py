"""Shards: content-addressed sets of trainable sequences, and how trainers read them."""
