-- shards: the training shards that were built.
-- Grain:  one shard.
-- Order:  created_at.
select * from shard_list
