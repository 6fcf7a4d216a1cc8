"""The agent at the suite: asks the served model for each sum of a file, and writes what it said.

It needs nothing but Python, and sees no more of the model than its address.
"""

import http.client
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

FILE = Path("sums.txt")


def ask(line: str, seed: int) -> tuple[str, int]:
    """The answer of the model, and its number of tokens."""
    body = {
        "model": os.environ["PENSTOCK_CHECKPOINT"],
        "messages": [{"role": "user", "content": line}],
        "seed": seed,
    }
    address = urlsplit(os.environ["PENSTOCK_MODEL_URL"])
    engine = http.client.HTTPConnection(address.netloc, timeout=60)
    engine.request("POST", f"{address.path}/chat/completions", json.dumps(body))
    document = json.load(engine.getresponse())
    tokens: int = document["usage"]["completion_tokens"]
    return document["choices"][0]["message"]["content"], tokens


def main() -> None:
    lines = FILE.read_text().splitlines()
    seed = int(os.environ["PENSTOCK_SEED"])
    with ThreadPoolExecutor(len(lines)) as pool:
        answers = list(pool.map(ask, lines, range(seed, seed + len(lines))))
    asked = [text.endswith("?") for text, _ in answers]
    written = [
        line if is_question else line.replace("?", text)
        for line, (text, _), is_question in zip(lines, answers, asked, strict=True)
    ]
    FILE.write_text("".join(f"{line}\n" for line in written))
    report = {
        "completion_tokens": sum(tokens for _, tokens in answers),
        "steps": len(lines),
        "tool_calls": 1,
        "invalid_tool_calls": 0,
        "asked": 2 * sum(asked) > len(asked),
        "answer": "",
    }
    Path(os.environ["PENSTOCK_REPORT"]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
