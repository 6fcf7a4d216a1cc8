-- Rewards of whole sessions, by one definition, as they were known last.
-- Grain: session_id, name, horizon_s.
select session_id, target_kind, name, horizon_s, value, state, reason, weight, due_at
from rewards
where definition_version = $version
  and superseded_at is null
  and target_kind = 'session'
  and session_id in (select session_id from wanted)
