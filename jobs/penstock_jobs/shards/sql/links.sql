-- Sessions that go on with another one's work, or repeat it. From the latest `session_start`, as the
-- view `sessions` has it; of all other sessions nothing is grouped, of which there are many more.
-- Grain: session_id.
with starts as (
    select session_id,
           max(struct_pack(
               ts             := start_ts,
               parent_session := parent_session,
               link           := link
           )) as start
    from session_parts
    where start_ts is not null
      and session_id in (select session_id from session_parts where parent_session is not null)
    group by session_id
)
select session_id, start.parent_session as parent_session, start.link as link
from starts
where start.parent_session is not null and start.link is not null
