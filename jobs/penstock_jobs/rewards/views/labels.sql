-- labels:  labels of messages by people and language models, from `penstock rewards label`.
-- Grain:   session_id, turn, message, is_model, labelled_at.
-- Order:   labelled_at.
-- Current: where superseded_at is null and label is not null. Labels are only added: a new label or
--          an undo keeps the earlier row.
--
-- Columns:
--   session_id, turn  the message with which the turn begins
--   message           digest of its text
--   label             what the user did, one of ten, or `unclear`; null after an undo
--   dissatisfied      1 or 0, 0.5 for `unclear`: as rates count it
--   drawn             drawn at random; else it decides the request of one that was
--   labelled_by       a person, or a model and the version of its prompt
--   is_model          a language model said it
--   labelled_at       when
--   superseded_at     when it was labelled again or undone; null while it counts
select session_id, turn, message, label,
       case when label = 'unclear' then 0.5
            when label in ('incomplete', 'corrects', 'reports_failure', 'reverts', 'complains')
            then 1.0
            when label is not null then 0.0
       end::double as dissatisfied,
       drawn, "by" as labelled_by, is_model, "at" as labelled_at,
       lead("at") over (
           partition by session_id, turn, message, is_model order by id
       ) as superseded_at
from label_list
