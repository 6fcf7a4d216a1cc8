"""The share of the sums that are right."""

import json
import os
from pathlib import Path

right = Path(os.environ["PENSTOCK_CHECK"], "right.txt").read_text().splitlines()
found = Path("sums.txt").read_text().splitlines()
score = sum(line in found for line in right) / len(right)
Path(os.environ["PENSTOCK_RESULT"]).write_text(json.dumps({"score": score}))
