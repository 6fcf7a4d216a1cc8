-- Sessions, the newest first, each with how it ended by the definition that computed it last.
-- Grain:  session_id.
-- Order:  last_ts, session_id, both descending.
-- The conditions are those that were asked for, so that each reaches the scan of summaries.
with page as (
    select session_id, first_ts, last_ts, "user", project, checkpoint, consent, events,
           user_messages, model_calls, tool_calls, edits, parent_session, link, end_reason
    from sessions
    where {conditions}
    order by last_ts desc, session_id desc
    limit cast(getvariable('rows_max') as bigint)
),
ended as (
    select session_id, outcome, reason, value, definition, definition_version
    from outcomes
    where superseded_at is null and {definition}
      and session_id in (select session_id from page)
    qualify row_number() over (partition by session_id order by computed_at desc) = 1
)
select page.*, outcome, reason, value, definition, definition_version
from page
left join ended using (session_id)
order by last_ts desc, session_id desc
