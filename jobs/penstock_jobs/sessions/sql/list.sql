-- These sessions, each with how it ended by the definition that computed it last.
-- Grain:  session_id.
with page as (
    select session_id, first_ts, last_ts, "user", project, checkpoint, client, model, consent, events,
           user_messages, model_calls, tool_calls, failed_tool_calls, edits, prompt_tokens,
           completion_tokens, parent_session, link, end_reason
    from sessions
    where session_id in (select unnest(from_json(getvariable('sessions'), '["VARCHAR"]')))
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
