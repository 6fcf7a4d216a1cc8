-- checkpoints: model versions, with the shards that each was trained on.
-- Grain:  one checkpoint.
-- Order:  registered_at.
-- The shards of its parents are theirs: follow `parent`.
select name as checkpoint, digest, uri, form, parent, coalesce(moved_to, state) as state, checked,
       bytes, note, registered_by, registered_at,
       coalesce((select list(trained.shard order by trained.shard) from checkpoint_shards as trained
                 where trained.checkpoint = listed.name), []) as shards
from checkpoint_list as listed
