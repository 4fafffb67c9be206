"""The agent of a case: `python agent.py HOME`. It implements the case's change, and verifies by the case's truth.

`HOME/<phase>.json` holds the files to write and delete, a path of evidence, whether an item demands it.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

HOME = Path(sys.argv[1])


def implement(phase: dict[str, Any]) -> None:
    for name, text in phase["write"].items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in phase["delete"]:
        Path(name).unlink(missing_ok=True)


def verify(phase: dict[str, Any]) -> None:
    """Pass every item of the plan; say of a changed promise which item demands it, or that none does."""
    ids = re.findall(r"^- ([A-Z]\d*): ", sys.stdin.read(), re.MULTILINE)
    with (HOME / "asked").open("a") as asked:
        asked.writelines(f"{item}\n" for item in ids)
    items = []
    cited = phase["evidence"]
    evidence = f"{cited}:1" if Path(cited).exists() else [{"kind": "file", "ref": cited, "gone": True}]
    for item in ids:
        passed: dict[str, object] = {"item": item, "result": "pass", "evidence": evidence}
        if item.startswith("T"):
            passed |= {"demanded_by": "W1"} if phase["demanded"] else {"result": "fail", "evidence": "no item asks"}
        items.append(passed)
    answer = {"status": "done", "summary": "Compared the diff with every item of the phase.", "items": items}
    Path(os.environ["RUNPLAN_RETURN"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    script = json.loads((HOME / f"{os.environ['RUNPLAN_PHASE']}.json").read_text())
    match os.environ["RUNPLAN_ROLE"]:
        case "implement":
            implement(script)
        case "verify":
            verify(script)
