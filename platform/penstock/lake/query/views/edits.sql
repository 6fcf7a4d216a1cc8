-- edits: what the agent changed in files.
-- Grain:  one edit event.
-- Order:  session_id, ts, seq.
-- A missing `before` or `after` is null, and so are its sizes: a new file is not an empty one.
--
-- Columns:
--   session_id, ts, seq, checkpoint, user, project, consent, event_id  [shared](#shared-columns)
--   edit_id                                   its id
--   call_id                                   the tool call that made it
--   path, language                            the file
--   before, after                             the texts; `before` is null for a new file
--   before_chars, after_chars, before_lines, after_lines  their sizes; lines are line breaks + 1
select session_id, ts, seq, checkpoint, "user", project, consent, event_id,
       f[1]           as edit_id,
       f[2]           as call_id,
       f[3]           as path,
       f[4]           as language,
       texts[1]       as before,
       texts[2]       as after,
       length(texts[1])                    as before_chars,
       length(texts[2])                    as after_chars,
       len(string_split(texts[1], chr(10))) as before_lines,
       len(string_split(texts[2], chr(10))) as after_lines
from (
    select *,
           json_extract_string(payload, ['$.edit_id', '$.call_id', '$.path', '$.language']) as f,
           json_extract_string(payload, ['$.before', '$.after'])                            as texts
    from event_rows
    where type = 'edit'
)
