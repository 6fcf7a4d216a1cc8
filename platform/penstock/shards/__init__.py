"""Shards: content-addressed sets of trainable sequences.

`schema`, `manifest`, `files`, `rules` and `writer` are the format. `reader` feeds a trainer, by way
of `sources`, `order`, `batches` and `balance`. The columns of the SQL views `shards` and `samples` are
in `views`.
"""
