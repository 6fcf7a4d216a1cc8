-- What exclusions ask about sessions.
-- Grain: session_id.
select session_id, "user", coalesce(repo, project) as repo, "commit", task_id, consent,
       checkpoints, events, epoch_us(first_ts) as first_us
from sessions
where session_id in (select session_id from asked)
order by session_id
