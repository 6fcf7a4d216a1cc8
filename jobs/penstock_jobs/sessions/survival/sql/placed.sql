-- Edits with what is known of them, and with the model call that they came from.
-- Grain:  session_id, target_id: the target of their rewards.
with numbered as (
    select session_id, ts, path, after_lines, before_lines,
           coalesce(nullif(edit_id, ''), nullif(event_id, ''),
                    epoch_us(ts) || ':' || coalesce(seq::varchar, '')) as name,
           row_number() over (partition by session_id, name order by ts, seq) as nth
    from edits
    where session_id in (select session_id from chosen)
)
select edited.session_id, edited.ts, path, call.ts as call_ts, model, prompt_tokens,
       completion_tokens,
       lower(regexp_extract(path, '\.([A-Za-z0-9_]+)$', 1))    as language,
       name || case when nth > 1 then '#' || nth else '' end   as target_id,
       greatest(after_lines - coalesce(before_lines, 0), 1)    as lines_at_least,
       count(*) over (partition by edited.session_id, call.ts) as edits_of_call
from numbered as edited
asof left join (
    select session_id, ts, model, prompt_tokens, completion_tokens from model_calls
    where session_id in (select session_id from chosen)
) as call
    on call.session_id = edited.session_id and call.ts <= edited.ts
