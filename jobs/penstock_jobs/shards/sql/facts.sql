-- What exclusions ask about sessions, from one to another.
-- Grain: session_id.
select session_id, "user", coalesce(repo, project) as repo, "commit", task_id, consent,
       checkpoints, events, epoch_us(first_ts) as first_us
from sessions
where session_id between $first and $last
  and session_id in (select session_id from wanted)
order by session_id
