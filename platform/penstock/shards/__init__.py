"""Shards: content-addressed sets of trainable sequences, and the reader that feeds a trainer."""
