-- What the user asked first in each of these sessions: its first characters. What a program sent
-- for the user, such as the context of a harness, is no request.
-- Grain:  session_id.
select session_id, arg_min(left(said[1], 200), ts) as opening
from (
    select session_id, ts, json_extract_string(payload, ['$.text', '$.synthetic']) as said
    from events
    where type = 'user_message'
      and session_id in (select unnest(from_json(getvariable('sessions'), '["VARCHAR"]')))
)
where said[2] is distinct from 'true'
group by session_id
