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
    select session_id,
           arg_max(outcome, computed_at)            as outcome,
           arg_max_null(reason, computed_at)        as reason,
           arg_max_null(value, computed_at)         as value,
           arg_max(definition, computed_at)         as definition,
           arg_max(definition_version, computed_at) as definition_version
    from stored_outcomes
    semi join page using (session_id)
    where tenant = getvariable('tenant') and {definition}
    group by session_id
)
select page.*, outcome, reason, value, definition, definition_version
from page
left join ended using (session_id)
order by last_ts desc, session_id desc
