-- Files that one session's edit was taken out of and another's stayed in. A group is a file; a
-- session is in the group of the file in which it wrote most. Sessions that go on with another's
-- work are left out: it would be in two groups. The sample sessions share no file; it finds none.
with edited as (
    select session_id, project, path, edit_id, after_chars
    from edits
    where edit_id is not null
),

judged as (
    select session_id, target_id as edit_id, min(value) as persistence
    from rewards
    where name = 'edit_persistence' and target_kind = 'edit' and horizon_s = 600
      and definition = 'default' and superseded_at is null and state = 'scored'
    group by session_id, target_id
),

files as (
    select session_id, project, path, avg(persistence) as persistence, sum(after_chars) as chars
    from edited
    inner join judged using (session_id, edit_id)
    group by session_id, project, path
    qualify row_number() over (partition by session_id order by chars desc, path) = 1
),

corrected as (
    select project, path
    from files
    group by project, path
    having min(persistence) <= 0.2 and max(persistence) >= 0.8
)

select
    session_id,
    concat(files.project, ' ', files.path) as group_id
from files
inner join corrected on files.path = corrected.path
    and files.project is not distinct from corrected.project
where (persistence <= 0.2 or persistence >= 0.8)
  and session_id in (select session_id from sessions where parent_session is null)
order by session_id
