-- What decisions on users and projects say of sessions.
-- Grain: session_id, of those that name a user or a project on whom something was decided.
with labels as (
    select distinct session_id, "user", project
    from events
    where session_id in (select session_id from asked)
),
judged as (
    select session_id,
           coalesce(bool_or("user"  in (select unnest($users_denied::varchar[]))), false)
               as user_denies,
           coalesce(bool_or(project in (select unnest($projects_denied::varchar[]))), false)
               as project_denies,
           -- Of several users all have to be willing; a row that names none says nothing.
           coalesce(bool_and("user"  in (select unnest($users_willing::varchar[])))
               filter (where "user" is not null), false)
           or coalesce(bool_and(project in (select unnest($projects_willing::varchar[])))
               filter (where project is not null), false) as allows
    from labels
    group by session_id
)
select session_id, user_denies, project_denies, allows
from judged
where user_denies or project_denies or allows
