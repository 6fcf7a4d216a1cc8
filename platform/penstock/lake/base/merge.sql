-- The rows of some segments in the order of a segment.
SELECT *
FROM read_parquet($files)
ORDER BY tenant, session_id, ts, seq NULLS LAST
