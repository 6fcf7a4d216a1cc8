-- When the tokens were sampled that these sessions may be trained on: their first model calls that
-- wrote something. With $engine only calls with the engine's tokens write something.
-- Grain: session_id; of sessions that hold copies of others' events ($copying), an event.
with calls as (
    select session_id, epoch_us(ts) as sampled_us, seq, source, source_key, event_id,
           list_contains($copying, session_id)                     as is_copying,
           json_extract_string(payload, ['$.tokens.completion_ids', '$.model', '$.is_copied_context',
                                         '$.text', '$.thinking', '$.tool_calls']) as said
    from events
    where type = 'model_call' and session_id in (select session_id from wanted)
)
select session_id, min(sampled_us) as sampled_us,
       if(is_copying, seq, null)        as seq,
       if(is_copying, source, null)     as source,
       if(is_copying, source_key, null) as source_key,
       if(is_copying, event_id, null)   as event_id
from calls
where (coalesce(said[1], '[]') <> '[]'
       or not $engine and (coalesce(said[4], '') <> '' or coalesce(said[5], '') <> ''
                           or coalesce(said[6], '[]') <> '[]'))
  and coalesce(said[2], '') <> '<synthetic>'
  and coalesce(said[3], 'false') <> 'true'
group by all
