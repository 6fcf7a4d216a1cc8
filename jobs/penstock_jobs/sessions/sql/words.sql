-- Of these sessions those in which the words stand, with the text around the first of them.
-- Grain:  session_id.
with texts as (
    select session_id, ts,
           concat_ws(' ', text[1], text[2], text[3], text[4], text[5]) as text
    from (
        select session_id, ts, json_extract_string(payload, [
                   '$.text', '$.thinking', '$.output', '$.path', '$.comment']) as text
        from events
        where session_id in (
                  select unnest(from_json(getvariable('sessions'), '["VARCHAR"]')))
          and type in ('user_message', 'model_call', 'tool_result', 'edit', 'feedback')
    )
),
places as (
    select session_id, ts, text, strpos(lower(text), lower(getvariable('words'))) as place
    from texts
)
-- A condition on the place would be pushed to where all payloads are read.
select session_id, arg_min(substr(text, greatest(place - 60, 1), 240), ts)
                       filter (where place > 0) as found
from places
group by session_id
having bool_or(place > 0)
