-- Sessions of a checkpoint in which each watched rate was highest, by one definition.
-- Grain:  rate, session_id: at most five per rate.
-- Order:  rate, the highest and the newest first.
with own as (
    select session_id, outcome, reason, last_ts, requests, edited_requests, answered_requests, asking_requests,
           tool_calls, invalid_tool_calls
    from outcomes
    where superseded_at is null
      and definition_version = getvariable('version')
      and checkpoint = getvariable('checkpoint')
      and (getvariable('since_us') = '' or last_ts >= make_timestamptz(try_cast(getvariable('since_us') as bigint)))
),
rated as (
    select outcome as rate, session_id, reason, last_ts, 1 as hits, 1 as of
    from own where outcome in ('negative_by_rule', 'censored', 'excluded')
    union all
    select 'edited_sessions', session_id, reason, last_ts, 1, 1 from own where edited_requests > 0
    union all
    select 'edited_requests', session_id, reason, last_ts, edited_requests, requests from own where edited_requests > 0
    union all
    select 'clarifying_questions', session_id, reason, last_ts, asking_requests, answered_requests from own where asking_requests > 0
    union all
    select 'invalid_tool_calls', session_id, reason, last_ts, invalid_tool_calls, tool_calls from own where invalid_tool_calls > 0
)
select rate, session_id, reason, last_ts, hits, of
from rated
qualify row_number() over (partition by rate order by hits / greatest(of, 1) desc, hits desc, last_ts desc, session_id) <= 5
order by rate, hits / greatest(of, 1) desc, hits desc, last_ts desc, session_id
