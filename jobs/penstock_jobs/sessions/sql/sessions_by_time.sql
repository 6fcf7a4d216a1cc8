-- Sessions by when they began to come in, in steps of so many seconds, and the events in them.
-- Grain:  step.
-- Order:  step.
select time_bucket(to_seconds(cast(getvariable('step_s') as bigint)), first_received_at) as step,
       count(*) as sessions, sum(events) as events
from sessions
where first_received_at >= make_timestamptz(cast(getvariable('since_us') as bigint))
group by step
order by step
