-- What tells about the edits of a stretch of a session: edits, looks at files, commits, messages and
-- ends of it and of the sessions of its chain, from some time before the stretch until the last
-- horizon behind it. Of a busy stretch the nearest to its beginning, by number, bytes and lines.
-- Order:  ts, seq.
-- `start_us` and `last_us` are the moments of its first and its last edit.
-- `is_whole` is false where some that came later were left out.
with near as (
    select session_id, ts, seq, type, event_id, source, source_key, checkpoint, payload,
           ts >= make_timestamptz(cast(getvariable('start_us') as bigint)) as is_behind
    from events
    where session_id in (select unnest(from_json(getvariable('sessions'), '["VARCHAR"]')))
      and type in ('edit', 'file_observed', 'vcs_commit', 'session_end', 'user_message')
      and ts between make_timestamptz(cast(getvariable('start_us') as bigint)
                                      - cast(getvariable('before_us') as bigint))
                 and make_timestamptz(cast(getvariable('last_us') as bigint)
                                      + cast(getvariable('behind_us') as bigint))
),
numbered as (
    select *, row_number() over away as number, sum(cost) over away as bytes
    from (
        -- A line costs as much as forty bytes: texts of short lines are work for the service.
        select *, strlen(payload)
                  + 20 * (strlen(payload) - strlen(replace(payload, '\n', ''))) as cost
        from near
    )
    window away as (
        partition by is_behind
        order by abs(epoch_us(ts) - cast(getvariable('start_us') as bigint)), seq
        rows unbounded preceding
    )
),
kept as (
    select *, number <= cast(getvariable('history_rows_max') as bigint)
              and bytes <= cast(getvariable('history_bytes_max') as bigint) as is_kept
    from numbered
)
select * exclude (is_kept, number, bytes, cost, is_behind),
       (select bool_and(is_kept) from kept where is_behind) as is_whole
from kept
where is_kept
order by ts, seq
