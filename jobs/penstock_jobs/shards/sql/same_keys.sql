-- Events whose source's key is in several of these sessions. No payload is read.
-- Grain: an event.
select session_id, ts, seq, type, source, source_key, event_id,
       null::varchar as message, null::varchar as written, null::varchar as sampled
from events
where session_id in (select session_id from wanted)
  and not list_contains($repeating, session_id)
  and source_key is not null
qualify min(session_id) over (partition by source, source_key)
     <> max(session_id) over (partition by source, source_key)
