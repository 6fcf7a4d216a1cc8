-- One row an event of the tenant, of those that a job has read.
CREATE TEMP VIEW event_rows AS
SELECT * FROM bucket_rows
WHERE tenant = getvariable('tenant')
