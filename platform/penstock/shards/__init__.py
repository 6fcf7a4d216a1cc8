"""Shards: content-addressed sets of trainable sequences.

`schema`, `manifest`, `files`, `rules` and `writer` are the format. `reader` feeds a trainer,
through `sources`, `batches` and `balance`. `views` has the columns of the SQL views `shards` and
`samples`.
"""
