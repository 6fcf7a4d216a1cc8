"""Sessions that agents keep: each format that they are kept in has an importer."""
