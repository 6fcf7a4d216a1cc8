"""A module for each format, with IMPORTER. `registry` finds them here."""
