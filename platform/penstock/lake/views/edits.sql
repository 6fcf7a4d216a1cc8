-- edits: what the agent changed in files.
-- Grain:  one edit event.
-- Order:  session_id, ts, seq.
-- A missing `before` or `after` is null, and so are its sizes: a new file is not an empty one.
--
-- Columns:
--   session_id    the session
--   ts            the time of the event
--   seq           the producer's number of the event within the session; may be null
--   checkpoint    the checkpoint that served the session at that moment
--   user          who worked in the session
--   project       what they worked on
--   consent       the session's consent: `train`, `no_train` or `unknown`
--   event_id      the producer's id of the event, unique within its session; may be null
--   edit_id       the edit's id
--   call_id       the tool call that made it
--   path          the file
--   language      its language
--   before        the text before; null for a new file
--   after         the text after
--   before_chars  characters before
--   after_chars   characters after
--   before_lines  lines before: line breaks + 1
--   after_lines   lines after
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
