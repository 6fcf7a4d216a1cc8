-- What the chosen sessions were worth, how much of their code was kept, and how dissatisfied users
-- came back: means with the half width of their 95 % interval, by checkpoint and day.
-- Grain:  measure (`worth`, `kept`, `dissatisfied`), kind (`checkpoint`, `day`), label.
-- Order:  kind, newest first, at most 8 labels of each.
-- Reads stored_rewards. The table `chosen` says which are current.
with measured as (
    select session_id, 'worth' as measure, value from chosen where value is not null
    union all
    select session_id,
           case name when 'work_left' then 'kept' else 'dissatisfied' end as measure,
           case name when 'work_left' then rewards.value else -rewards.value end as value
    from stored_rewards as rewards
    join chosen using (session_id, computed_at)
    where tenant = getvariable('tenant')
      and definition_version = getvariable('version')
      and target_kind = 'session' and outcome <> 'excluded'
      and state = 'scored' and isfinite(rewards.value)
      and (name = 'work_left' and horizon_s = 600 or name = 'dissatisfied_follow_up')
),
labelled as (
    select session_id, first_ts, 'checkpoint' as kind, checkpoint as label from chosen
    union all
    select session_id, first_ts, 'day' as kind,
           strftime(first_ts at time zone 'UTC', '%Y-%m-%d') as label
    from chosen
)
select measure, kind, label, count(*) as sessions, avg(value) as mean,
       1.96 * stddev_samp(value) / sqrt(count(*)) as half
from measured
join labelled using (session_id)
where label is not null
group by measure, kind, label
qualify row_number() over (partition by measure, kind order by max(first_ts) desc, label) <= 8
order by measure, kind, max(first_ts) desc, label
