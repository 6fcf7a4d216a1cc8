-- The outcomes beside them: one row for each time that a session was computed by a definition.
-- What a later computation saw supersedes what an earlier one did.
CREATE VIEW stored_outcomes AS
SELECT *,
       lead(computed_at) OVER (
           PARTITION BY session_id, definition_version ORDER BY computed_at
       ) AS superseded_at
FROM read_parquet(getvariable('stored_outcomes_files'))
WHERE tenant = getvariable('tenant')
