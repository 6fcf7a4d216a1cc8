-- Edits of which no line stood after the first hours, the longest first. Of lines that the agent
-- itself replaced, nobody else is to blame.
-- Grain:  session_id, target_id.
-- Reads stored_rewards by the definition `survival`, and the tables `chosen` and `placed`.
with gone as (
    select session_id, target_id, state <> 'scored' as by_agent, weight as lines
    from stored_rewards
    join chosen using (session_id, computed_at)
    where tenant = getvariable('tenant')
      and definition_version = getvariable('version')
      and name = 'line_survival' and target_kind = 'edit'
      and horizon_s = cast(getvariable('first_s') as bigint)
      and weight > 0
      and case state when 'scored' then coalesce(stored_rewards.value, 0) = 0
                     when 'pending' then false
                     else reason = 'self_rework' end
),
costs as (
    select gone.*, ts, path, model, prompt_tokens / edits_of_call as prompt_tokens,
           completion_tokens / edits_of_call as completion_tokens
    from gone
    left join placed using (session_id, target_id)
)
select session_id, target_id as edit, ts, path, client as tool, model, lines, by_agent,
       prompt_tokens, completion_tokens,
       count(*) over ()                            as edits_in_all,
       sum(lines) over ()                          as lines_in_all,
       coalesce(sum(completion_tokens) over (), 0) as completion_tokens_in_all
from costs
left join (select session_id, client from sessions
           where session_id in (select session_id from gone)) using (session_id)
order by lines desc, ts, session_id, edit
limit 20
