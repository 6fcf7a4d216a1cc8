-- One row an event of the tenant, where no fresh ones and no changes of consent are asked about:
-- planned in half of the time.
CREATE VIEW event_rows AS
SELECT * FROM stored_events WHERE tenant = getvariable('tenant')
