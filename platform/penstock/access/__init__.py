"""Who may do what: keys, tenants and roles."""
