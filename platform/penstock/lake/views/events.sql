-- events: one row an event, as it was stored.
-- Grain:  one event.
-- Order:  session_id, ts, seq.
-- Filters on any column but payload and extra reach the Parquet scan.
--
-- Columns:
--   session_id      the session
--   ts              when it happened
--   seq             the producer's number of the event within the session; may be null
--   type            the type of the event; `x_…` types are the producer's own
--   event_id        the producer's id of the event, unique within its session; may be null
--   source          the producer
--   source_key      the producer's own id of the event
--   checkpoint      as sent with the event
--   user            who worked in the session
--   project         what they worked on
--   consent         the session's consent: `train`, `no_train` or `unknown`
--   payload         the event's payload, its JSON text as it was sent; read it with `payload ->> 'name'`
--   extra           unknown top-level fields, as a JSON object; null if there were none
--   schema_version  the version of the event format
--   received_at     when the gateway accepted it
select session_id, ts, seq, type, event_id, source, source_key, checkpoint, "user", project,
       consent, payload, extra, schema_version, received_at
from event_rows
