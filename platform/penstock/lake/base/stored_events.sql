-- The events of the pinned segments.
CREATE VIEW stored_events AS
SELECT * FROM read_parquet(getvariable('stored_events_files'))
