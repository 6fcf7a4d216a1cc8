-- Sessions that may continue this one, or be other attempts at its task, by the parts of their
-- summaries.
-- Grain:  session_id.
select distinct session_id
from session_parts
where parent_session = getvariable('session')
   or (getvariable('task') <> '' and task_id = getvariable('task'))
limit 1000
