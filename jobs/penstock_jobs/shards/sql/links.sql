-- Sessions that go on with another one's work, or repeat it.
-- Grain: session_id.
select session_id, parent_session, link
from sessions
where parent_session is not null and link is not null
