-- One row an event of the tenant: stored ones, and fresh ones that are only in the log yet.
-- Consent is what is known of the session now, where rows were written before it was.
CREATE VIEW event_rows AS
SELECT rows.* REPLACE (coalesce(changes.consent, rows.consent) AS consent)
FROM (
    SELECT * FROM stored_events
    UNION ALL
    SELECT * FROM fresh_events
) AS rows
LEFT JOIN consent_changes AS changes
    ON changes.tenant = rows.tenant AND changes.session_id = rows.session_id
WHERE rows.tenant = getvariable('tenant')
