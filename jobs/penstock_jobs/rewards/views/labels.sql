-- labels:  what people and language models said of messages, by `penstock rewards label`.
-- Grain:   session_id, turn, message, is_model, labelled_at.
-- Order:   labelled_at.
-- Current: where superseded_at is null and label is not null. Labels are only added: who labels a
--          message again, or takes the label back, leaves the earlier one.
--
-- Columns:
--   session_id, turn  which message: that with which the turn begins
--   message           digest of its text: the label is of these words
--   label             what the user did, one of eight, or `unclear`; null where it was taken back
--   dissatisfied      1 or 0, 0.5 for `unclear`: as rates count it
--   drawn             chance drew it; else it was chosen since the judge is unsure of it
--   labelled_by       who: a person, or a model and the version of its prompt
--   is_model          a language model said it
--   labelled_at       when
--   superseded_at     when it was labelled again, or taken back; null for what counts now
select session_id, turn, message, label,
       case when label = 'unclear' then 0.5
            when label in ('corrects', 'reports_failure', 'reverts', 'complains') then 1.0
            when label is not null then 0.0
       end::double as dissatisfied,
       drawn, "by" as labelled_by, is_model, "at" as labelled_at,
       lead("at") over (
           partition by session_id, turn, message, is_model order by id
       ) as superseded_at
from label_list
