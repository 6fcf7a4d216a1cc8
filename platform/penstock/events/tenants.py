"""Tenants: whose events they are. Known by name alone."""

TENANT_DEFAULT = "default"
TENANT_CHARS_MAX = 128


def is_tenant(name: str) -> bool:
    return 0 < len(name) <= TENANT_CHARS_MAX and name.isprintable()
