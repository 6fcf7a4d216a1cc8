-- checkpoints: model versions, with the shards that each was trained on.
-- Grain:  one checkpoint.
-- Order:  registered_at.
-- The shards of its parents are theirs: follow `parent`.
--
-- Columns:
--   checkpoint     its name
--   digest         the digest of its files
--   uri            where they are
--   form           `whole`, or `delta` on its parent
--   parent         the checkpoint that it was trained from
--   state          `registered`, `serving`, `retired`, `rolled_back`, `withdrawn`
--   checked        `verified` where its files had the digest, else why nobody could look
--   bytes          of its files, where they were looked at
--   note           what was said of it
--   registered_by  who registered it
--   registered_at  when
--   shards         the shards that it was trained on, beyond those of its parents
select name as checkpoint, digest, uri, form, parent, coalesce(moved_to, state) as state, checked,
       bytes, note, registered_by, registered_at,
       coalesce((select list(trained.shard order by trained.shard) from checkpoint_shards as trained
                 where trained.checkpoint = listed.name), []) as shards
from checkpoint_list as listed
