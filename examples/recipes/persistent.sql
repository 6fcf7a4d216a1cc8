-- Sessions in which nearly all that the agent wrote was still there ten minutes later, and that
-- nobody complained about. For what is still there after a day, run the definition `comparing`,
-- and ask for it and for horizon_s = 86400.
with kept as (
    select session_id, min(value) as persistence
    from rewards
    where name = 'edit_persistence' and target_kind = 'session' and horizon_s = 600
      and definition = 'default' and superseded_at is null and state = 'scored'
    group by session_id
),

complaints as (
    select session_id
    from rewards
    where name in ('dissatisfied_follow_up', 'explicit_feedback') and target_kind = 'session'
      and definition = 'default' and superseded_at is null and value < 0
)

select
    session_id,
    persistence as weight                   -- of the loss: what was kept for nine tenths counts so
from kept
where persistence >= 0.9
  and session_id not in (select session_id from complaints)
order by session_id
