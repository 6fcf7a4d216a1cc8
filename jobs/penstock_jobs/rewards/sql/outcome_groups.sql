-- How the sessions that a page chose ended, by one definition, and what they were worth: by
-- checkpoint, by project, and by day.
-- Grain:  kind (`checkpoint`, `project`, `day`), label.
-- Order:  kind, newest first.
with chosen as (
    select outcomes.session_id, outcome, value, outcomes.checkpoint, sessions.project,
           outcomes.first_ts
    from outcomes
    left join sessions on sessions.session_id = outcomes.session_id
    where superseded_at is null
      and definition_version = getvariable('version')
      and (getvariable('since_us') = '' or outcomes.last_ts >= make_timestamptz(try_cast(getvariable('since_us') as bigint)))
      and (getvariable('checkpoint') = '' or outcomes.checkpoint = getvariable('checkpoint'))
      and (getvariable('project') = '' or sessions.project = getvariable('project'))
),
grouped as (
    select 'checkpoint' as kind, checkpoint as label, * from chosen
    union all
    select 'project' as kind, project as label, * from chosen
    union all
    select 'day' as kind, strftime(first_ts at time zone 'UTC', '%Y-%m-%d') as label, * from chosen
)
select kind, label, count(*) as sessions,
       count(*) filter (outcome = 'scored') as scored,
       count(*) filter (outcome = 'negative_by_rule') as negative_by_rule,
       count(*) filter (outcome = 'censored') as censored,
       count(*) filter (outcome = 'excluded') as excluded,
       count(*) filter (outcome = 'pending') as pending,
       quantile_cont(value, 0.1) as low, median(value) as median, quantile_cont(value, 0.9) as high,
       avg(value) as mean
from grouped
group by kind, label
qualify row_number() over (partition by kind order by max(first_ts) desc, label) <= 30
order by kind, max(first_ts) desc, label
