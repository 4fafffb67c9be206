"""The throw-away project of the demo, as texts: a small program, its tests, a plan, and the agent that plays it."""

from __future__ import annotations

import shlex

PLAN = "plans/DISCOUNT.md"

PLAN_TEXT = """\
---
title: Discounts
status: active
---

# Plan: Discounts

The shop adds up prices. It shall also take something off.

## Progress Tracker

| Phase | Status | Commit | Notes |
|-------|--------|--------|-------|
| 1 — Take a discount off | ⬚ | | |
| 2 — Refuse impossible discounts | ⬚ | | |
| 3 — Print a receipt | ⬚ | | |

## Phase 1 — Take a discount off

Touches: prices.py, tests/**

### Work Items

- [ ] `discounted(total, percent)` in `prices.py`
- [ ] A test for it

### Acceptance Criteria

- [ ] 10 percent off 200 is 180

## Phase 2 — Refuse impossible discounts

Touches: prices.py, tests/**

### Work Items

- [ ] `discounted` raises ValueError below 0 and above 100 percent
- [ ] A test for each of the two

### Dependencies

Phase 1

## Phase 3 — Print a receipt

Touches: prices.py, tests/**, README.md

### Work Items

- [ ] `receipt(prices, percent)`: one line with total, discount, to pay
- [ ] The README shows such a line

### Dependencies

Phase 1 and Phase 2
"""

SETTINGS = """\
[run]
worktrees = "../worktrees"

[agents]
implementer = "player"
verifier = "player"
sandbox = "none"

[agents.player]
kind = "script"
script = "agent.toml"

[tests]
command = "sh check"
"""

#: The implementer of phase 2 forgets the lower bound; its own test finds it out, and the fixer mends it.
AGENT = '''\
[[phase."1".implement]]
append = "prices.py"
text = """


def discounted(total, percent):
    return total * (100 - percent) / 100
"""

[[phase."1".implement]]
write = "tests/test_discount.py"
text = """
import unittest

from prices import discounted


class Discount(unittest.TestCase):
    def test_ten_percent_off(self):
        self.assertEqual(discounted(200, 10), 180)
"""

[[phase."1".implement]]
commit = "Take a discount off"

[[phase."1".verify]]
return = {status = "done", summary = "Both done, and tested.", items = [
    {item = "W1", result = "pass", evidence = "prices.py:5"},
    {item = "W2", result = "pass", evidence = "tests/test_discount.py:7"},
    {item = "C1", result = "pass", evidence = "test_ten_percent_off"},
]}

[[phase."2".implement]]
write = "prices.py"
text = """
def total(prices):
    return sum(prices)


def discounted(total, percent):
    if percent > 100:
        raise ValueError("a discount is at most 100 percent")
    return total * (100 - percent) / 100
"""

[[phase."2".implement]]
append = "tests/test_discount.py"
text = """

    def test_more_than_everything_off(self):
        self.assertRaises(ValueError, discounted, 200, 101)

    def test_less_than_nothing_off(self):
        self.assertRaises(ValueError, discounted, 200, -1)
"""

[[phase."2".implement]]
commit = "Refuse impossible discounts"

[[phase."2".implement]]
say = "All done, every test is green."

[[phase."2".fix]]
write = "prices.py"
text = """
def total(prices):
    return sum(prices)


def discounted(total, percent):
    if not 0 <= percent <= 100:
        raise ValueError("a discount is from 0 to 100 percent")
    return total * (100 - percent) / 100
"""

[[phase."2".fix]]
commit = "Refuse negative discounts too"

[[phase."2".verify]]
return = {status = "done", summary = "Both bounds hold, each with its test.", items = [
    {item = "W1", result = "pass", evidence = "prices.py:6"},
    {item = "W2", result = "pass", evidence = "tests/test_discount.py:10, :13"},
]}

[[phase."3".implement]]
append = "prices.py"
text = """


def receipt(prices, percent):
    full = total(prices)
    pay = discounted(full, percent)
    return f"total {full:.2f}, discount {full - pay:.2f}, to pay {pay:.2f}"
"""

[[phase."3".implement]]
write = "tests/test_receipt.py"
text = """
import unittest

from prices import receipt


class Receipt(unittest.TestCase):
    def test_one_line(self):
        self.assertEqual(receipt([150, 50], 10), "total 200.00, discount 20.00, to pay 180.00")
"""

[[phase."3".implement]]
append = "README.md"
text = """

    >>> receipt([150, 50], 10)
    'total 200.00, discount 20.00, to pay 180.00'
"""

[[phase."3".implement]]
commit = "Print a receipt"

[[phase."3".verify]]
return = {status = "done", summary = "The line is as asked for.", items = [
    {item = "W1", result = "pass", evidence = "test_one_line"},
    {item = "W2", result = "pass", evidence = "README.md:5"},
]}
'''

PRICES = """\
def total(prices):
    return sum(prices)
"""

TEST = """\
import unittest

from prices import total


class Total(unittest.TestCase):
    def test_adds_up(self):
        self.assertEqual(total([1, 2, 3]), 6)
"""


def files(python: str) -> dict[str, str]:
    """Every file of the project by its path; `python` runs its tests."""
    return {
        "README.md": "# Shop\n\nAdds up prices.\n",
        "prices.py": PRICES,
        "tests/test_total.py": TEST,
        "check": f"exec {shlex.quote(python)} -m unittest discover -s tests\n",
        ".gitignore": "__pycache__/\n",
        "runplan.toml": SETTINGS,
        "agent.toml": AGENT,
        PLAN: PLAN_TEXT,
    }
