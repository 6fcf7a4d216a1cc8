-- Facts for the rules of outcomes: what had happened in each session up to a moment.
-- Grain:  session_id.
-- Order:  session_id.
-- `happened` holds the rows of all tables of a bucket; `view` is the table's name. A session with
-- only later events has a row too. Consent counts regardless of time.
with events as (
    select session_id, view, consent, checkpoint,
           case when view = 'events' then type end as type,
           epoch_us(ts) as us,
           epoch_us(ts)::hugeint * 18446744073709551616 + coalesce(seq, 0) as place,
           epoch_us(ts) <= $as_of_us as seen,
           view in ('model_calls', 'tool_calls', 'edits') as by_agent,
           coalesce(error_class = 'invalid_arguments', false) as invalid,
           case when json_valid(payload)
                then json_extract_string(payload, '$.reason') = 'user_stop' end as stops
    from happened
),
sessions as (
    select session_id,
           bool_or(consent = 'no_train') as refused,
           max(us) filter (seen) as last_us,
           bool_or(by_agent and seen) as acted,
           list(invalid order by place, invalid) filter (view = 'tool_calls' and seen) as calls,
           max(place) filter (view = 'tool_calls' and seen) as called,
           max(place) filter (view = 'edits' and seen) as edited,
           max(place) filter (view = 'user_messages' and seen) as asked,
           max(place) filter (type = 'session_end' and seen) as ended,
           max(place) filter ((type = 'interrupt' or type = 'session_end' and stops) and seen)
               as stopped,
           min(checkpoint) filter (by_agent and seen) as first_checkpoint,
           max(checkpoint) filter (by_agent and seen) as last_checkpoint
    from events
    group by session_id
)
select session_id,
       coalesce(refused, false)                                        as refused,
       last_us,
       acted,
       coalesce(calls, [])                                             as calls,
       edited is not null                                              as edited,
       edited is not null and (called is null or edited > called)      as edited_after_last_call,
       ended is not null and (asked is null or ended > asked)          as ended,
       stopped is not null and (asked is null or stopped > asked)      as stopped,
       case when first_checkpoint = last_checkpoint then first_checkpoint end as checkpoint
from sessions
order by session_id
