-- Partial summaries of the tenant's sessions: one for each file that holds events of a session.
CREATE VIEW session_parts AS
SELECT * FROM stored_sessions WHERE tenant = getvariable('tenant')
UNION ALL
SELECT * FROM fresh_sessions WHERE tenant = getvariable('tenant')
