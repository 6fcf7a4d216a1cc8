-- shards: the training shards that were built.
-- Grain:  one shard.
-- Order:  created_at.
-- Marked sessions are those that it holds and should hold no more.
select id as shard, name, snapshot, snap, samples, tokens, trainable, bytes, marked_sessions,
       created_at
from shard_list
