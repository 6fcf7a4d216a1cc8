-- checkpoints: model versions, with the shards that each was trained on.
-- Grain:  one checkpoint.
-- Order:  registered_at.
-- The shards of its parents are theirs: follow `parent`.
--
-- Columns:
--   checkpoint, digest, uri  name, digest and address of its files
--   form                     `whole`, or `delta` on its parent
--   parent                   what it was trained from
--   state                    `registered`, `serving`, `retired`, `rolled_back`, `withdrawn`
--   checked                  `verified` where its files had the digest, else why nobody could look
--   bytes                    of its files, if known
--   note, registered_by      what was said of it, and by whom
--   registered_at            when
--   shards                   what it was trained on, beyond its parents' shards
select name as checkpoint, digest, uri, form, parent, coalesce(moved_to, state) as state, checked,
       bytes, note, registered_by, registered_at,
       coalesce((select list(trained.shard order by trained.shard) from checkpoint_shards as trained
                 where trained.checkpoint = listed.name), []) as shards
from checkpoint_list as listed
