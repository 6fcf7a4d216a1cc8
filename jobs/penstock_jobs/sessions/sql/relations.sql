-- Sessions that may continue this one, or be other attempts at its task, by the parts of their
-- summaries.
-- Grain:  session_id.
with own as (
    select distinct task_id
    from session_parts
    where session_id = getvariable('session') and task_id <> ''
)
select distinct session_id
from session_parts
where session_id <> getvariable('session')
  and (parent_session = getvariable('session') or task_id in (from own))
limit 1000
