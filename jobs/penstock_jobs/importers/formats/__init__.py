"""A module for each format, or a family of them, with IMPORTERS. `importer` finds them here."""
