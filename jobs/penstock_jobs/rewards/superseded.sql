-- Rows of `computed` (file, session_id, definition_version, computed_at) that were computed again by
-- a time, by file. During a merge some rows exist twice.
select computed.file, computed.session_id, computed.computed_at
from computed
join (
    select session_id, definition_version, computed_at,
           lead(computed_at) over (
               partition by session_id, definition_version order by computed_at
           ) as superseded_at
    from (select distinct session_id, definition_version, computed_at from computed)
) as history using (session_id, definition_version, computed_at)
where history.superseded_at <= make_timestamp($until_us)
order by computed.file
