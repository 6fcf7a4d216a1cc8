-- feedback: what people said or did about the agent's work.
-- Grain:  one feedback event.
-- Order:  session_id, ts, seq.
-- `positive` is true for accept and thumbs up, false for reject, undo and thumbs down, and null for
-- ratings (their scale is the producer's) and comments. summary.sql counts by the same rule.
--
-- Columns:
--   session_id, ts, seq, checkpoint, user, project, consent, event_id  [shared](#shared-columns)
--   target                                    the id of an edit or a call
--   kind                                      `thumbs`, `rating`, `accept`, `reject`, `undo`, `comment`
--   value                                     as sent
--   value_number                              as a number, if it is one
--   comment                                   words
--   positive                                  true for accept and thumbs up, false for reject, undo and thumbs down, else null
select session_id, ts, seq, checkpoint, "user", project, consent, event_id,
       f[1]                     as target,
       f[2]                     as kind,
       f[3]                     as value,
       try_cast(f[3] as double) as value_number,
       f[4]                     as comment,
       case
           when f[2] = 'accept'             then true
           when f[2] in ('reject', 'undo')  then false
           when f[2] = 'thumbs' then case
               when lower(f[3]) in ('up', 'true', 'yes')    then true
               when lower(f[3]) in ('down', 'false', 'no')  then false
               when isfinite(try_cast(f[3] as double)) then try_cast(f[3] as double) > 0
           end
       end                      as positive
from (
    select *,
           json_extract_string(payload, ['$.target', '$.kind', '$.value', '$.comment']) as f
    from event_rows
    where type = 'feedback'
)
