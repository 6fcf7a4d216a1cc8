-- How the rewards of sessions are spread, by one definition, over the sessions that a page chose.
-- Grain:  name, horizon_s, bin: 24 of the same width between the least and the greatest value.
-- Order:  the reward that the definition makes of all comes first.
with chosen as (
    select session_id from outcomes
    where superseded_at is null
      and definition_version = getvariable('version')
      and (getvariable('since_us') = '' or last_ts >= make_timestamptz(try_cast(getvariable('since_us') as bigint)))
      and (getvariable('checkpoint') = '' or checkpoint = getvariable('checkpoint'))
      and (getvariable('project') = ''
           or session_id in (select session_id from sessions where project = getvariable('project')))
),
valued as (
    select name, horizon_s, value from rewards
    where superseded_at is null
      and definition_version = getvariable('version')
      and target_kind = 'session'
      and state = 'scored'
      and isfinite(value)
      and (getvariable('name') = '' or name = getvariable('name'))
      and session_id in (select session_id from chosen)
),
bounds as (
    select name, horizon_s, min(value) as low, max(value) as high, count(*) as sessions,
           avg(value) as mean, median(value) as median
    from valued group by name, horizon_s
),
binned as (
    select bounds.*, coalesce(least(floor((value - low) / nullif(high - low, 0) * 24), 23), 0)::integer as bin
    from valued
    join bounds on bounds.name = valued.name and bounds.horizon_s is not distinct from valued.horizon_s
)
select name, horizon_s, low, high, sessions, mean, median, bin, count(*) as in_bin
from binned
group by name, horizon_s, low, high, sessions, mean, median, bin
order by name <> 'reward', name, horizon_s, bin
limit 2000
