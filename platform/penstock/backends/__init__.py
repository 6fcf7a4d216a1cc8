"""Outside systems: one narrow protocol each, an embedded twin and one that scales out."""
