-- How many rewards of sessions have which state, by one definition, over the sessions that a page
-- chose. What a session has that is excluded counts nowhere: that is its state here.
-- Grain:  name, state.
with chosen as (
    select session_id, outcome from outcomes
    where superseded_at is null
      and definition_version = getvariable('version')
      and (getvariable('since_us') = '' or last_ts >= make_timestamptz(try_cast(getvariable('since_us') as bigint)))
      and (getvariable('checkpoint') = '' or checkpoint = getvariable('checkpoint'))
      and (getvariable('project') = ''
           or session_id in (select session_id from sessions where project = getvariable('project')))
)
select name, state, count(*) as rewards
from (
    select name, case when outcome = 'excluded' then 'excluded' else state end as state
    from rewards
    join chosen using (session_id)
    where superseded_at is null
      and definition_version = getvariable('version')
      and target_kind = 'session'
)
group by name, state
order by name <> 'reward', name, state
limit 1000
