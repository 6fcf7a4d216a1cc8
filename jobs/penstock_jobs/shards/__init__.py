"""Building shards: from a recipe to files that a trainer reads.

`recipe` → `plan`: `selection` (which sessions the query names, with their rewards), `exclusion`
(which are left out), advantages and the evaluation split → `build`, whose workers turn events
(`session_events`, `conversation_reader`) into branches (`engine_branches` of an engine's tokens,
`rendered_branches` of text) and these into `samples` → `registration`. `export` writes shards for
other trainers.
"""
