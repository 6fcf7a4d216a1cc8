-- Events that a session repeats from its parent.
-- Grain: an event of `all_events`, by its number.
-- `all_events` holds the events of the sessions and their parents. `links` holds parents, and
-- whether a session repeats its parent's history (fork, resume) or continues it (compaction,
-- subagent). Events of a continuing session are compared by keys only.
-- An event is repeated if it has the source key of an event of the parent, or exactly its sampled
-- tokens, or if it belongs to the repeated history: the first messages, as long as they equal the
-- parent's in order or by id, and events between them that equal the parent's literally; a look at a
-- file also by time or id, since a file may be again as it was. Equal words after that are no
-- repetition, whatever their id: anybody may say "go on" twice, and producers count from 1 in each
-- session.
with involved as (
    select number, all_events.session_id, ts, coalesce(seq, 9223372036854775807) as seq, type,
           coalesce(source, '') as source, source_key, event_id, payload,
           type in ('user_message', 'model_call') as is_message,
           case when type in ('user_message', 'model_call')
                then json_extract(payload, ['$.text', '$.thinking', '$.tool_calls']) end as said,
           case when type = 'model_call' then json_extract_string(
               payload, ['$.tokens.completion_ids', '$.tokens.prompt_ids']) end as tokens
    from all_events
    where all_events.session_id in (select session_id from links union select parent_session from links)
),
digested as (
    select * exclude (said, tokens),
           case when coalesce(said[1]::varchar, '""') <> '""'
                  or coalesce(said[2]::varchar, '""') <> '""'
                  or coalesce(said[3]::varchar, '[]') <> '[]' then md5(said::varchar) end as message,
           case when coalesce(tokens[1], '[]') <> '[]' then md5(tokens[1]) end            as written,
           case when coalesce(tokens[1], '[]') <> '[]'
                then md5(coalesce(tokens[2], '') || tokens[1]) end                        as sampled,
           row(ts, seq, number) as place,
           case when is_message then row_number() over (
               partition by session_id, is_message order by ts, seq, number) end          as nth
    from involved
),
pairs as (
    select own.*, links.parent_session, links.repeats
    from digested as own
    join links using (session_id)
),
compared as (
    select own.session_id, own.nth, own.place,
           coalesce(
               own.type = parent.type
               and own.message is not distinct from parent.message
               and case when own.written is not null and parent.written is not null
                        then own.written = parent.written else own.message is not null end,
               false)
           or exists (
               select 1 from digested as same
               where same.session_id = own.parent_session and same.event_id = own.event_id
                 and same.type = own.type and same.payload = own.payload
           ) as alike
    from pairs as own
    left join digested as parent
        on parent.session_id = own.parent_session and parent.nth = own.nth
    where own.repeats and own.is_message
),
parted as (
    -- Where the own words of a session begin, if it begins with words of its parent.
    select session_id, min(place) filter (not alike) as place
    from compared
    group by session_id
    having bool_or(nth = 1 and alike)
)
select distinct own.number
from pairs as own
left join parted using (session_id)
where exists (
    select 1 from digested as parent
    where parent.session_id = own.parent_session
      and parent.source = own.source and parent.source_key = own.source_key
)
or own.repeats and (
    exists (
        select 1 from digested as parent
        where parent.session_id = own.parent_session and parent.sampled = own.sampled
    )
    or parted.session_id is not null and (parted.place is null or own.place < parted.place) and (
        own.is_message
        or exists (
            select 1 from digested as parent
            where parent.session_id = own.parent_session
              and parent.type = own.type and parent.payload = own.payload
              and (own.type <> 'file_observed'
                   or parent.ts = own.ts or parent.event_id = own.event_id)
        )
    )
)
order by number
