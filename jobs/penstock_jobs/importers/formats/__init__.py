"""A module for each format, or a family of them. `importer` finds their importers here."""
