-- user_messages: what people wrote to the agent.
-- Grain:  one user_message event.
-- Order:  session_id, ts, seq.
-- It has no turn number: counting turns needs every earlier message of the session, and so a
-- filter on ts could not reach the Parquet scan. The view turns has the number and the text.
--
-- Columns:
--   session_id, ts, seq, checkpoint, user, project, consent, event_id  [shared](#shared-columns)
--   text                                      the message
--   text_chars                                its length
select session_id, ts, seq, checkpoint, "user", project, consent, event_id,
       json_extract_string(payload, '$.text')         as text,
       length(json_extract_string(payload, '$.text')) as text_chars
from event_rows
where type = 'user_message'
