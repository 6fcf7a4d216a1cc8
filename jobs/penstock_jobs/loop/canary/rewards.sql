-- One reward of whole sessions, as it was computed last.
-- Grain:  session_id, of all that were computed.
-- A session may have no such reward at all: it never will, unless the whole is pending yet.
-- What was computed before the time cannot be of a session that began in it: files of before are
-- not read.
with computed as (
    select session_id, value, state,
           name = $name and horizon_s is not distinct from $horizon_s as wanted
    from rewards
    where definition_version = $version
      and target_kind = 'session'
      and name in ($name, 'reward')
      and superseded_at is null
      and computed_at >= make_timestamptz($computed_us)
)
select session_id,
       any_value(value) filter (wanted)                 as value,
       coalesce(any_value(state) filter (wanted),
                case when bool_or(state = 'pending' and not wanted) then 'pending'
                     else 'missing' end)                as state
from computed
group by session_id
