-- Of this session and others those that continue it, and other attempts at its task: the newest of
-- each.
-- Grain:  relation, session_id.
with related as (
    select session_id, parent_session, task_id, link, checkpoint, project, last_ts, end_reason
    from sessions
    where session_id in (
        select unnest(from_json(getvariable('sessions'), '["VARCHAR"]')))
),
own as (
    select task_id from related where session_id = getvariable('session')
),
children as (
    select 'child' as relation, session_id, link, checkpoint, project, last_ts, end_reason
    from related
    where parent_session = getvariable('session')
    order by last_ts desc
    limit 20
),
attempts as (
    select 'attempt' as relation, session_id, link, checkpoint, project, last_ts, end_reason
    from related
    where task_id in (from own) and session_id <> getvariable('session')
    order by last_ts desc
    limit 50
)
from children union all from attempts
order by relation, last_ts desc
