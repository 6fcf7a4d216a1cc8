-- One reward of whole sessions, by its newest computation.
-- Grain:  session_id, all computed sessions.
-- A session without such a reward never gets one, unless its combined reward is still pending.
-- Computations before $computed_us cannot be about a session of the trial, so they are not read.
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
