-- shards: the training shards that were built.
-- Grain:  one shard.
-- Order:  created_at.
-- Marked sessions are those that it holds and should hold no more.
--
-- Columns:
--   shard              its id: the digest of its manifest
--   name               the recipe's name
--   snapshot           what it was built from
--   snap               the commit that the snapshot names
--   samples            trainable sequences
--   tokens, trainable  all, and those that the model wrote
--   bytes              of its files
--   marked_sessions    sessions that it should hold no more, as far as is known
--   created_at         when it was built
--   gone               dropping, dropped or erased where its files are not there any more
select id as shard, name, snapshot, snap, samples, tokens, trainable, bytes, marked_sessions,
       created_at, gone
from shard_list
