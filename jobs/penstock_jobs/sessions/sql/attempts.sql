-- The newest session of each of two checkpoints at a task.
-- Grain:  checkpoint.
select checkpoint, arg_max(session_id, last_ts) as session_id
from sessions
where task_id = getvariable('task')
  and checkpoint in (getvariable('before'), getvariable('after'))
group by checkpoint
