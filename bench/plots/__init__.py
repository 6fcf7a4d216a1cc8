"""`make plots`: what the formulas of the rewards look like, drawn from the functions themselves."""
