-- The session summaries beside the pinned segments.
CREATE VIEW stored_sessions AS
SELECT * FROM read_parquet(getvariable('stored_sessions_files'))
