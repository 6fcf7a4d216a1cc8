#!/bin/sh
cd /app
find . {ignored} -prune -o -type f -exec sha256sum {{}} + | LC_ALL=C sort |
    cmp -s - /tests/tree.sums
export PENSTOCK_EDITED=$? PENSTOCK_TASK={name} PENSTOCK_CHECK=/tests/check
export PENSTOCK_PROMPT_FILE=/tests/prompt.md PENSTOCK_REPORT=/tests/report.json
export PENSTOCK_RESULT="$(mktemp -d)/result.json"
{command}
status=$?
[ $status -le 1 ] || exit $status
if [ -e "$PENSTOCK_RESULT" ]; then cp "$PENSTOCK_RESULT" /logs/verifier/reward.json
else echo $((1 - status)) > /logs/verifier/reward.txt; fi
