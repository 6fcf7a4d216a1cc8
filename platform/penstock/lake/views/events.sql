-- events: one row an event, as it was stored.
-- Grain:  one event.
-- Order:  session_id, ts, seq.
-- Filters on any column but payload and extra reach the Parquet scan.
select session_id, ts, seq, type, event_id, source, source_key, checkpoint, "user", project,
       consent, payload, extra, schema_version, received_at
from event_rows
