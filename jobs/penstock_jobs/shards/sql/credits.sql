-- Rewards of single edits, turns and requests, and of choices of an answer as a whole, by one
-- definition, as they were known last.
-- Grain: session_id, target_kind, target_id, name, horizon_s.
select session_id, target_kind, target_id, name, horizon_s, value, weight
from rewards
where definition_version = $version
  and superseded_at is null
  and state = 'scored'
  and (target_kind in ('edit', 'turn', 'request')
       or (target_kind = 'model_call' and name = 'reward' and regexp_matches(target_id, ':[0-9]+$')))
  and session_id in (select session_id from wanted)
order by session_id, name, target_kind, target_id, horizon_s
