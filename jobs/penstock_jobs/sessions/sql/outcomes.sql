-- How many sessions that were heard of since then ended how, each by the definition that computed it
-- last; their mean worth, when that was, and the version of the newest.
-- Grain:  outcome.
select outcome, count(*) as sessions, avg(value) as worth, max(computed_at) as computed_at,
       arg_max(definition_version, computed_at) as version
from (
    select session_id, outcome, value, computed_at, definition_version from outcomes
    where superseded_at is null and listed
      and session_id in (
          select session_id from sessions
          where last_ts >= make_timestamptz(cast(getvariable('since_us') as bigint)))
    qualify row_number() over (partition by session_id order by computed_at desc) = 1
)
group by outcome
order by sessions desc, outcome
