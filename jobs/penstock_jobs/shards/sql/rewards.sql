-- Rewards of whole sessions and of their requests, by one definition, as they were known last.
-- Grain: session_id, target_kind, target_id, name, horizon_s.
select session_id, target_kind, target_id, name, horizon_s, value, state, reason, weight, due_at
from rewards
where definition_version = $version
  and superseded_at is null
  and target_kind in ('session', 'request')
  and session_id in (select session_id from wanted)
