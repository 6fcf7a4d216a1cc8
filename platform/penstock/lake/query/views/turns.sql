-- turns: what one user message set off.
-- Grain:  (session_id, turn). A turn begins at a user_message and ends before the next one; what
--         comes before the first message is turn 0.
-- Order:  session_id, turn.
-- Filters on session_id reach the Parquet scan. Others cannot: the number of a turn depends on
-- every earlier message of its session.
--
-- Columns:
--   session_id, user, project, consent        [shared](#shared-columns)
--   turn                                      0 precedes the first user message; then 1, 2, …
--   ts, last_ts                               its first event (the user message, except in turn 0) and its last
--   seq, text                                 of the user message
--   checkpoint                                of the latest event of the turn that names one
--   events, model_calls, edits, feedback, interrupts, errors  how many
--   tool_calls, failed_tool_calls             tool results, and those with `ok: false`
--   prompt_tokens, completion_tokens          sums, bounded as in sessions
with parsed as (
    select session_id, ts, seq, key, type, checkpoint, "user", project, consent,
           case when type = 'user_message' then json_extract_string(payload, '$.text') end as text,
           case when type = 'tool_result' then json_extract_string(payload, '$.ok') end    as ok,
           case when type = 'model_call' then json_extract_string(
               payload, ['$.usage.prompt', '$.usage.completion']) end                      as usage
    from event_rows
),
numbered as (
    select *,
           try_cast(usage[1] as bigint) as prompt,
           try_cast(usage[2] as bigint) as completion,
           count(*) filter (where type = 'user_message') over (
               partition by session_id order by ts, seq, key rows unbounded preceding
           ) as turn
    from parsed
)
select session_id,
       turn::bigint                              as turn,
       min(ts)                                   as ts,
       max(ts)                                   as last_ts,
       arg_min(seq, ts) filter (where type = 'user_message') as seq,
       arg_max(checkpoint, ts)                   as checkpoint,
       max("user")                               as "user",
       max(project)                              as project,
       case when bool_or(consent = 'no_train') then 'no_train'
            when bool_or(consent = 'train')    then 'train'
            else 'unknown' end                   as consent,
       min(text)                                 as text,
       count(*)                                  as events,
       count(*) filter (where type = 'model_call')     as model_calls,
       count(*) filter (where type = 'tool_result')    as tool_calls,
       count(*) filter (where ok = 'false')            as failed_tool_calls,
       count(*) filter (where type = 'edit')           as edits,
       count(*) filter (where type = 'feedback')       as feedback,
       count(*) filter (where type = 'interrupt')      as interrupts,
       count(*) filter (where type = 'error')          as errors,
       -- Bounded as in summary.sql, so that no sum can overflow.
       coalesce(sum(prompt) filter (where prompt between 0 and 1_000_000_000), 0)::bigint
           as prompt_tokens,
       coalesce(sum(completion) filter (where completion between 0 and 1_000_000_000), 0)::bigint
           as completion_tokens
from numbered
group by session_id, turn
