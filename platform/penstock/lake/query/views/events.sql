-- events: one row an event, as it was stored.
-- Grain:  one event.
-- Order:  session_id, ts, seq.
-- Filters on any column but payload and extra reach the Parquet scan.
--
-- Columns:
--   session_id, ts, seq, user, project, consent, event_id  [shared](#shared-columns)
--   type                                      its type; `x_…` types are the producer's own
--   source, source_key                        the producer, and its own id of the event
--   checkpoint                                as sent with the event
--   payload                                   JSON text as it was sent: `payload ->> 'name'`
--   extra                                     unknown top-level fields, a JSON object
--   schema_version                            of the event format
--   received_at                               when the gateway accepted it
select session_id, ts, seq, type, event_id, source, source_key, checkpoint, "user", project,
       consent, payload, extra, schema_version, received_at
from event_rows
