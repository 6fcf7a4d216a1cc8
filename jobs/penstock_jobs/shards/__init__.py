"""Building shards: from a recipe to files that a trainer reads.

`recipe` → `selection` (which sessions the query names, with their rewards) → `exclusion` (which are
left out) → `plan` → `slices` on workers (`session_events`, `conversation_reader`, `engine_tokens`,
`branches`, `renderer`, `sample_rows`) → `build` (parts, manifest) → `registration`. `export` writes
shards for other trainers.
"""
