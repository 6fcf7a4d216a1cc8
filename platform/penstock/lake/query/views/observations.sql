-- observations: what a file held when someone looked again; rewards measure persistence by it.
-- Grain:  one file_observed event.
-- Order:  session_id, ts, seq.
--
-- Columns:
--   session_id, ts, seq, checkpoint, user, project, consent, event_id  [shared](#shared-columns)
--   path                                      the file
--   text                                      what it held
--   text_chars                                its length
--   deleted                                   whether it was gone
--   branch_changed                            whether the branch had changed; null if not said
--   edit_ids                                  the edits that it is about
select session_id, ts, seq, checkpoint, "user", project, consent, event_id,
       f[1]                                           as path,
       json_extract_string(payload, '$.text')         as text,
       length(json_extract_string(payload, '$.text')) as text_chars,
       coalesce(try_cast(f[2] as boolean), false)     as deleted,
       try_cast(f[3] as boolean)                      as branch_changed,
       json_extract_string(payload, '$.edit_ids[*]')  as edit_ids
from (
    select *,
           json_extract_string(payload, ['$.path', '$.deleted', '$.branch_changed']) as f
    from event_rows
    where type = 'file_observed'
)
