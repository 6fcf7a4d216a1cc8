-- Partial summaries of the tenant's sessions, where no fresh events are asked about.
CREATE VIEW session_parts AS
SELECT * FROM stored_sessions WHERE tenant = getvariable('tenant')
