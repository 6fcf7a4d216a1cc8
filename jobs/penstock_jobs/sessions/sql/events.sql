-- A page of a session's events. `remaining` is more than there are on the page if more follow.
-- Order:  ts, seq, and what tells two events of one moment apart.
-- `until` is a moment behind which nothing of the page can be: of long sessions the payloads up to
-- there alone are read.
with own as (
    select epoch_us(ts) as ts_us, coalesce(seq, 9223372036854775807) as place
    from events
    where session_id = getvariable('session')
),
until as (
    select coalesce(max(ts_us), try_cast(getvariable('after_ts') as bigint)) as until_us
    from (
        select ts_us
        from own
        where getvariable('after_ts') = ''
           or (ts_us, place) > (try_cast(getvariable('after_ts') as bigint),
                                try_cast(getvariable('after_place') as bigint))
        order by ts_us, place
        limit cast(getvariable('rows_max') as bigint) + 1
    )
),
placed as (
    select *, epoch_us(ts) as ts_us, coalesce(seq, 9223372036854775807) as place,
           md5(concat_ws(chr(31), type, event_id, source, source_key, payload)) as tie
    from events
    where session_id = getvariable('session')
      and ts <= (select make_timestamptz(until_us) from until)
      and (getvariable('after_ts') = ''
           or ts >= make_timestamptz(try_cast(getvariable('after_ts') as bigint)))
),
page as (
    select *, row_number() over after as number, count(*) over () as remaining,
           sum(strlen(payload)) over after as bytes
    from placed
    where getvariable('after_ts') = ''
       or (ts_us, place, tie) > (try_cast(getvariable('after_ts') as bigint),
                                 try_cast(getvariable('after_place') as bigint),
                                 getvariable('after_tie'))
    window after as (order by ts_us, place, tie rows unbounded preceding)
)
select ts, seq, type, event_id, source, source_key, checkpoint, payload, extra,
       ts_us, place, tie, remaining
from page
where number <= cast(getvariable('rows_max') as bigint)
  and (number = 1 or bytes <= cast(getvariable('bytes_max') as bigint))
order by number
