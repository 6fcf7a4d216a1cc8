-- The rows of the tenant's shards, with the file that each is in.
CREATE VIEW stored_samples AS
SELECT * FROM read_parquet(getvariable('stored_samples_files'), filename = true)
