"""Building shards: from a recipe to files that a trainer reads.

1. `recipe` names a query and how its sessions become samples.
2. `selection` plans: the sessions of the query with rewards, advantages and evaluation split.
   `exclusion` leaves sessions out.
3. `build` runs slices on workers. They read events (`conversation`) and make `rows`.
4. `registration` puts the shard into the database.
5. `export` writes shards for other trainers.
"""
