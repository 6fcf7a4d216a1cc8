-- Events that may be copies: their source's key is in several sessions, or the session resumes or
-- forks another, or is the one that is repeated.
-- Grain: an event.
select session_id, ts, seq, type, source, source_key, event_id,
       case when list_contains($repeating, session_id) and type in ('user_message', 'model_call')
            then md5(json_extract(payload, ['$.text', '$.tool_calls'])::varchar) end as message
from events
where session_id in (select unnest($sessions))
qualify list_contains($repeating, session_id)
     or (source_key is not null
         and min(session_id) over (partition by source, source_key)
             <> max(session_id) over (partition by source, source_key))
