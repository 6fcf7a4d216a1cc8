-- The rewards of the files that the query sees.
CREATE VIEW stored_rewards AS
SELECT * FROM read_parquet(getvariable('stored_rewards_files'))
WHERE tenant = getvariable('tenant')
