-- Sessions in which users had something to say about an answer: an edit of the agent was changed
-- within ten minutes, or an answer was refused or asked for again.
-- Grain: session_id.
select session_id
from rewards
where name = 'edit_persistence'
  and target_kind = 'edit'
  and horizon_s = 600
  and superseded_at is null
  and state = 'scored'
  and value > 0 and value < 1
union
select session_id
from feedback
where positive = false
union
select session_id
from events
where type = 'model_call'
  and payload ->> 'regenerates' is not null
order by session_id
