-- All events of sessions that resume or fork another, and of those that are repeated; and of all
-- others those with a source's key that one of these has.
-- Grain: an event.
with repeating as (
    select session_id, ts, seq, type, source, source_key, event_id,
           case when type in ('user_message', 'model_call')
                then md5(json_extract(payload, ['$.text', '$.tool_calls'])::varchar) end as message
    from events
    where session_id in (select unnest($repeating))
)
select * from repeating
union all
select session_id, ts, seq, type, source, source_key, event_id, null
from events
where session_id in (select unnest($sessions))
  and not list_contains($repeating, session_id)
  and (source, source_key) in (select (source, source_key) from repeating
                               where source_key is not null)
