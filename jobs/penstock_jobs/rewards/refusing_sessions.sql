-- Sessions among these that say `no_train` themselves.
-- Grain:  session_id.
-- Order:  session_id.
select session_id
from events
where list_contains($sessions, session_id) and consent = 'no_train'
group by session_id
order by session_id
