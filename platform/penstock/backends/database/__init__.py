"""The metadata database: tables, transactions, migrations."""
