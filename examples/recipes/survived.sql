-- Files in which an edit of the agent still stood after ten minutes, as they were last seen.
-- Grain: project, path.
with standing as (
    select distinct session_id, path
    from edits
    join rewards using (session_id)
    where target_kind = 'edit' and target_id = coalesce(edit_id, event_id)
      and name = 'edit_persistence' and horizon_s = 600 and definition = 'default'
      and superseded_at is null and state = 'scored' and value >= 0.9
),

last as (
    select session_id, path, text
    from observations
    where not coalesce(branch_changed, false)
    qualify row_number() over (
        partition by coalesce(project, ''), path order by ts desc, session_id, seq desc
    ) = 1
)

select
    session_id,
    path,
    text,                                   -- null for a deleted file, which is left out
    'LicenseRef-own' as license             -- yours: a file without one is left out
from last
semi join standing using (session_id, path)
order by session_id, path
