-- Edits of which no line stood after the first hours, the longest first. Of lines that the agent
-- itself replaced, nobody else is to blame.
-- Grain:  session_id, target_id.
select session_id, target_id as edit, ts, path, tool, model, lines,
       fate = 'self_rework' as by_agent, prompt_tokens, completion_tokens,
       count(*) over ()                            as edits_in_all,
       sum(lines) over ()                          as lines_in_all,
       coalesce(sum(completion_tokens) over (), 0) as completion_tokens_in_all
from written
where horizon_s = cast(getvariable('first_s') as bigint)
  and lines > 0
  and (fate = 'self_rework' or fate = 'scored' and standing = 0)
order by lines desc, ts, session_id, edit
limit 20
