-- Completion tokens of sessions that one checkpoint alone wrote and that were first scored after a
-- moment. A session that is negative by rule counts as scored.
with scored as (
    select session_id
    from outcomes
    where definition_version = $version
      and outcome in ('scored', 'negative_by_rule')
    group by session_id
    having epoch_us(min(computed_at)) > $after_us
)
select count(*) as sessions, coalesce(sum(completion_tokens), 0)::bigint as tokens
from sessions
semi join scored using (session_id)
where checkpoints = [$checkpoint]
