-- What the user asked first in each of these sessions: its first characters.
-- Grain:  session_id.
select session_id, arg_min(left(text, 200), ts) as opening
from user_messages
where session_id in (select unnest(from_json(getvariable('sessions'), '["VARCHAR"]')))
group by session_id
