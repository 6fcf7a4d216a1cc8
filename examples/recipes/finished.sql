-- Whole sessions of production, that have ended, as they come: good and bad.
select
    session_id,
    coalesce(project, '') as stratum
from sessions
where end_reason is not null
  and task_id is null
  and model_calls > 0
order by session_id
