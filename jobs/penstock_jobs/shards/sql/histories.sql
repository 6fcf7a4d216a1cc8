-- All events of sessions that resume or fork another, and of those that are repeated; and of all
-- others those with a source's key that one of these has. Digests of what was said (`message`), of
-- the tokens that the model wrote (`written`), and of these with those it had read (`sampled`).
-- Grain: an event.
with told as (
    select session_id, ts, seq, type, source, source_key, event_id,
           json_extract(payload, ['$.text', '$.thinking', '$.tool_calls'])     as said,
           json_extract_string(payload, '$.tokens.completion_ids')             as completion,
           json_extract_string(payload, '$.tokens.prompt_ids')                 as prompt
    from events
    where session_id in (select unnest($repeating))
),
repeating as (
    select session_id, ts, seq, type, source, source_key, event_id,
           case when type in ('user_message', 'model_call')
                 and (coalesce(said[1]::varchar, '""') <> '""'
                      or coalesce(said[2]::varchar, '""') <> '""'
                      or coalesce(said[3]::varchar, '[]') <> '[]')
                then md5(said::varchar) end                                    as message,
           case when type = 'model_call' and coalesce(completion, '[]') <> '[]'
                then md5(completion) end                                       as written,
           case when type = 'model_call' and coalesce(completion, '[]') <> '[]'
                then md5(coalesce(prompt, '') || completion) end               as sampled
    from told
)
select * from repeating
union all
select session_id, ts, seq, type, source, source_key, event_id, null, null, null
from events
where session_id in (select session_id from wanted)
  and not list_contains($repeating, session_id)
  and (source, source_key) in (select (source, source_key) from repeating
                               where source_key is not null)
