-- tool_calls: what the model asked a tool to do, with what came of it.
-- Grain:  one (session_id, call_id); a call or result without an id is a row of its own.
-- Order:  session_id, ts, seq.
-- A result whose call is not known stands alone, as does a call without a result (`ok` is null).
-- Of several calls or results with one id the earliest counts, so that nothing multiplies.
-- Filters on session_id reach the Parquet scan. A filter on ts cannot: the other half of a pair,
-- or an earlier duplicate, may lie outside the range. Name the sessions as well.
--
-- Columns:
--   session_id, user, project, consent  [shared](#shared-columns)
--   ts, seq, checkpoint                 of the model call, else of the result
--   call_id                             joins call and result
--   model_call_id                       the `call_id` of the model call that made it
--   tool                                its name, as called, else as in the result
--   arguments                           as sent; JSON text of an object
--   ok                                  whether it worked; null without a result
--   error_class                         `invalid_arguments`, `unexpected_environment`, `provider_error`, `user_aborted`, `timeout`, `unknown`
--   output                              what came back
--   duration_ms                         how long it took
--   called_ts, result_ts                times of call and result; null where it is not known
with said as (
    select session_id, ts, seq, key, checkpoint, "user", project, consent,
           unnest(json_extract(payload, '$.tool_calls[*]')) as call,
           json_extract_string(payload, '$.call_id')        as model_call_id
    from event_rows
    where type = 'model_call'
),
asked as (
    select *, json_extract_string(call, ['$.id', '$.name', '$.arguments']) as f from said
),
calls as (
    select *, coalesce(f[1], hex(key) || call::varchar) as link
    from asked
    qualify row_number() over (partition by session_id, link order by ts, seq, key, call) = 1
),
told as (
    select session_id, ts, seq, key, checkpoint, "user", project, consent,
           json_extract_string(payload, ['$.call_id', '$.tool', '$.ok', '$.error_class',
                                         '$.duration_ms', '$.output']) as f
    from event_rows
    where type = 'tool_result'
),
results as (
    select *, coalesce(f[1], hex(key)) as link
    from told
    qualify row_number() over (partition by session_id, link order by ts, seq, key) = 1
),
sides as (
    select session_id, link, ts as called_ts, seq as called_seq, null::timestamptz as result_ts,
           null::bigint as result_seq, checkpoint, "user", project, consent, f[1] as call_id,
           model_call_id, f[2] as tool, f[3] as arguments, null::varchar as result_tool,
           null::boolean as ok, null::varchar as error_class, null::varchar as output,
           null::double as duration_ms
    from calls
    union all
    select session_id, link, null, null, ts, seq, checkpoint, "user", project, consent, f[1],
           null, null, null, f[2], try_cast(f[3] as boolean), f[4], f[6], try_cast(f[5] as double)
    from results
)
-- At most one row of each side is in a group; min takes the one value there is.
select session_id,
       coalesce(min(called_ts), min(result_ts))          as ts,
       case when min(called_ts) is null then min(result_seq) else min(called_seq) end as seq,
       coalesce(min(checkpoint) filter (where called_ts is not null), min(checkpoint))
           as checkpoint,
       coalesce(min("user") filter (where called_ts is not null), min("user")) as "user",
       coalesce(min(project) filter (where called_ts is not null), min(project)) as project,
       case when bool_or(consent = 'no_train') then 'no_train'
            when bool_or(consent = 'train')    then 'train'
            else 'unknown' end                           as consent,
       min(call_id)                                      as call_id,
       min(model_call_id)                                as model_call_id,
       coalesce(min(tool), min(result_tool))             as tool,
       min(arguments)                                    as arguments,
       bool_and(ok)                                      as ok,
       min(error_class)                                  as error_class,
       min(output)                                       as output,
       min(duration_ms)                                  as duration_ms,
       min(called_ts)                                    as called_ts,
       min(result_ts)                                    as result_ts
from sides
group by session_id, link
