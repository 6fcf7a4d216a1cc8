-- summary: what one batch of events says about each of its sessions.
-- Grain:   one row a (tenant, session_id); the rows of many batches merge into a session.
-- Order:   tenant, session_id.
-- Reads:   rows (the columns of event_rows, any number of tenants).
--
-- Every column merges by min, max, sum or union, or by the greatest (time, value), so parts may be
-- merged in any order and grouping (views/sessions.sql does it). `x_ts` is the time of the event
-- that `x` came from; at the same time the greater hash wins, here and in views/sessions.sql.
--
-- JSON is parsed for five types and nothing else, once a row. Reading `ok` from the first letters
-- of the text, by a pattern or by string functions, was measured and is no faster.
-- Runs of equal labels are folded first (`runs`), so that the costlier choice of the latest label
-- looks at a few rows a session and not at every event.
with parsed as (
    select tenant, session_id, ts, received_at, type, checkpoint, "user", project, source, consent,
           case when type = 'model_call' then try(json_extract_string(
               payload, ['$.usage.prompt', '$.usage.completion', '$.model']))
           end as usage,
           case when type = 'tool_result' then try(json_extract_string(payload, '$.ok')) end as ok,
           case when type = 'feedback' then try(json_extract_string(
               payload, ['$.kind', '$.value']))
           end as said,
           case when type = 'session_end' then try(json_extract_string(payload, '$.reason'))
           end as reason,
           case when type = 'session_start' then try(json_extract_string(payload, [
               '$.client', '$.client_version', '$.repo', '$.branch', '$.commit', '$.task_id',
               '$.group_id', '$.arm', '$.parent_session', '$.link', '$.consent']))
           end as f
    from rows
),
judged as (
    -- Token counts are bounded, so that no producer's nonsense can overflow a sum.
    select *,
           case when usage is not null
                 and try_cast(usage[1] as bigint) between 0 and 1_000_000_000
                then try_cast(usage[1] as bigint) end as prompt,
           case when usage is not null
                 and try_cast(usage[2] as bigint) between 0 and 1_000_000_000
                then try_cast(usage[2] as bigint) end as completion,
           case
               when said is null                    then null
               when said[1] = 'accept'              then true
               when said[1] in ('reject', 'undo')   then false
               when said[1] = 'thumbs' then case
                   when lower(said[2]) in ('up', 'true', 'yes')   then true
                   when lower(said[2]) in ('down', 'false', 'no') then false
                   when isfinite(try_cast(said[2] as double)) then try_cast(said[2] as double) > 0
               end
           end as positive
    from parsed
),
runs as (
    select tenant, session_id, checkpoint, "user", project, source, consent,
           count(*)                                          as events,
           min(ts)                                           as first_ts,
           max(ts)                                           as last_ts,
           min(received_at)                                  as first_received_at,
           max(received_at)                                  as last_received_at,
           count_if(type = 'user_message')                   as user_messages,
           count_if(type = 'model_call')                     as model_calls,
           count_if(type = 'tool_result')                    as tool_calls,
           count_if(ok is not distinct from 'false')         as failed_tool_calls,
           count_if(type = 'edit')                           as edits,
           count_if(type = 'feedback')                       as feedback,
           count_if(positive is not distinct from true)      as feedback_positive,
           count_if(positive is not distinct from false)     as feedback_negative,
           count_if(type = 'interrupt')                      as interrupts,
           count_if(type = 'error')                          as errors,
           sum(prompt)                                       as prompt_tokens,
           sum(completion)                                   as completion_tokens,
           max(case f[11] when 'no_train' then 2 when 'train' then 1 else 0 end) filter (
               where type = 'session_start'
           )                                                 as start_consent,
           max(struct_pack(ts, model := usage[3])) filter (where usage[3] is not null) as asked,
           max(struct_pack(ts, f)) filter (where type = 'session_start') as start,
           max(struct_pack(ts, reason)) filter (where type = 'session_end') as "end"
    from judged
    group by tenant, session_id, checkpoint, "user", project, source, consent
),
keyed as (
    select *,
           epoch_us(last_ts)::hugeint * 4294967296 as moment
    from runs
),
merged as (
    select tenant, session_id,
           sum(events)::bigint                                         as events,
           min(first_ts)                                               as first_ts,
           max(last_ts)                                                as last_ts,
           min(first_received_at)                                      as first_received_at,
           max(last_received_at)                                       as last_received_at,
           arg_max("user", moment + hash("user") % 4294967296)             as "user",
           max(last_ts) filter (where "user" is not null)              as user_ts,
           arg_max(project, moment + hash(project) % 4294967296)           as project,
           max(last_ts) filter (where project is not null)             as project_ts,
           arg_max(source, moment + hash(source) % 4294967296)             as source,
           max(last_ts) filter (where source is not null)              as source_ts,
           arg_max(checkpoint, moment + hash(checkpoint) % 4294967296)     as checkpoint,
           max(last_ts) filter (where checkpoint is not null)          as checkpoint_ts,
           list(distinct checkpoint) filter (where checkpoint is not null) as checkpoints,
           max(greatest(case consent when 'no_train' then 2 when 'train' then 1 else 0 end,
                        coalesce(start_consent, 0)))                   as consent_rank,
           sum(user_messages)::bigint                                  as user_messages,
           sum(model_calls)::bigint                                    as model_calls,
           sum(tool_calls)::bigint                                     as tool_calls,
           sum(failed_tool_calls)::bigint                              as failed_tool_calls,
           sum(edits)::bigint                                          as edits,
           sum(feedback)::bigint                                       as feedback,
           sum(feedback_positive)::bigint                              as feedback_positive,
           sum(feedback_negative)::bigint                              as feedback_negative,
           sum(interrupts)::bigint                                     as interrupts,
           sum(errors)::bigint                                         as errors,
           coalesce(sum(prompt_tokens), 0)::bigint                     as prompt_tokens,
           coalesce(sum(completion_tokens), 0)::bigint                 as completion_tokens,
           max(asked)                                                  as asked,
           max(start)                                                  as start,
           max("end")                                                  as "end"
    from keyed
    group by tenant, session_id
)
select tenant, session_id, events, first_ts, last_ts, first_received_at, last_received_at,
       "user", user_ts, project, project_ts, source, source_ts, checkpoint, checkpoint_ts,
       coalesce(list_sort(checkpoints), []) as checkpoints,
       case consent_rank when 2 then 'no_train' when 1 then 'train' else 'unknown' end as consent,
       user_messages, model_calls, tool_calls, failed_tool_calls, edits,
       feedback, feedback_positive, feedback_negative, interrupts, errors,
       prompt_tokens, completion_tokens,
       asked.ts       as model_ts,
       asked.model    as model,
       start.ts       as start_ts,
       start.f[1]     as client,
       start.f[2]     as client_version,
       start.f[3]     as repo,
       start.f[4]     as branch,
       start.f[5]     as "commit",
       start.f[6]     as task_id,
       start.f[7]     as group_id,
       start.f[8]     as arm,
       start.f[9]     as parent_session,
       start.f[10]    as link,
       "end".ts       as end_ts,
       "end".reason   as end_reason,
       null::bigint   as changed_snap
from merged
order by tenant, session_id
