-- Rewards of single edits, turns and requests, by one definition, as they were known last.
-- Grain: session_id, target_kind, target_id, name, horizon_s.
select session_id, target_kind, target_id, name, horizon_s, value, weight
from rewards
where definition_version = $version
  and superseded_at is null
  and state = 'scored'
  and target_kind in ('edit', 'turn', 'request')
  and session_id in (select session_id from wanted)
order by session_id, name, target_kind, target_id, horizon_s
