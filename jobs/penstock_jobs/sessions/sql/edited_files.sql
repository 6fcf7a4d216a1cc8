-- Edits of files below a folder, in the order in which they came in.
-- Grain:  one edit event.
-- Order:  received_at, session_id, event_id.
-- A relative path begins where its session worked. An event without an id of its own is known by a
-- digest of what it says.
with edited as (
    select session_id,
           coalesce(event_id, 'content:' || md5(concat_ws(' ', epoch_us(ts), source, source_key, payload)))
               as event_id,
           project, epoch_us(ts) as ts_us, epoch_us(received_at) as received_us,
           json_extract_string(payload, ['$.edit_id', '$.path']) as f
    from events
    where type = 'edit'
      and ts >= make_timestamptz(cast(getvariable('edited_since_us') as bigint))
      and received_at >= make_timestamptz(cast(getvariable('since_us') as bigint))
),
begun as (
    select session_id, arg_min(json_extract_string(payload, '$.repo'), ts) as repo
    from events
    where type = 'session_start'
      and session_id in (select session_id from edited where f[2] not like '/%')
    group by session_id
),
placed as (
    select edited.*, f[1] as edit_id, f[2] as name,
           case when f[2] like '/%' then f[2] else rtrim(repo, '/') || '/' || f[2] end as path
    from edited
    left join begun using (session_id)
)
select session_id, event_id, edit_id, name, path, project, ts_us, received_us
from placed
where starts_with(path, getvariable('folder') || '/')
  and (received_us, session_id, event_id)
    > (cast(getvariable('after_us') as bigint), getvariable('after_session'),
       getvariable('after_event'))
order by received_us, session_id, event_id
limit cast(getvariable('rows_max') as bigint)
