"""Building shards: from a recipe to files that a trainer reads.

`recipe` → `plan`: `selection` (which sessions the query names, with their rewards), `exclusion`
(which are left out), advantages and the evaluation split → `build_slices` on workers: events
(`session_events`, `conversation_reader`) become branches (`engine_branches` of an engine's tokens,
`rendered_branches` of text) and these `samples` → `build` (parts, manifest) → `registration`.
`export` writes shards for other trainers.
"""
