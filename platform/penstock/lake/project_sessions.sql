-- The sessions of a project. A session of which one event names another project, or none, is not the
-- project's: whoever may send events could name its project in a session of others, and read it.
CREATE TABLE project_sessions AS
WITH likely AS (
    SELECT session_id FROM session_parts
    GROUP BY session_id
    HAVING bool_and(coalesce(project = getvariable('project'), false))
),
others AS (
    SELECT session_id FROM event_rows SEMI JOIN likely USING (session_id)
    WHERE project IS DISTINCT FROM getvariable('project')
)
SELECT session_id FROM likely ANTI JOIN others USING (session_id)
