"""Plans as people write them: which phases are read, what is left out, and what only the author can settle."""

import re

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, parse_plan

OPEN = "## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [ ] b\n"
BARE = "## Phase 1: A\n- a\n## Phase 2: B\n- b\n"
DONE = "## Phase 1: A ✅\ntext\n## Phase 2: B ✅\ntext\n"

SIGNS = {"done": "✅", "todo": "⬚", "in-progress": "🟡", "blocked": "🔴"}

#: A plan, and what is read of it: each phase with the sign of its status, what it waits for (`<1`), and its title or
#: the number of its work items (`W2`), if they matter; behind a bar the line and words of each remark, with `!` where
#: the author has to settle it.
READINGS = [
    # Ids of work are read.
    ("# P\n## 🧥 EPIC A — Shop\n### HU-7.1 · Add\n- a\n## 🎨 EPIC B — Cart\n### HU-7.2 · Pay\n- b\n", "A⬚ B⬚"),
    ("# P\n## TASK-001: Parse\n- [ ] a\n## TASK-002: Write\n- [ ] b\n", "001⬚ 002⬚"),
    ("# P\n## 1. Scope\nWhy.\n## 2. Parts\n### AUTH-PR-1 — A\n- a\n### AUTH-PR-2 — B\n- b\n", "1⬚ 2⬚"),
    ("# P\n## Phase 1 — A\n### T-01 Parse\nHow.\n### T-02 Write\nHow.\n## Phase 2 — B\nHow.\n", "1⬚ W2 2⬚"),
    ("## Phase 1 — A\n| Task | Size |\n|---|---|\n| **1.1** Parse | S |\n| **1.2** Write | M |\n", "1⬚ W2"),
    # The word behind an id is its status.
    ("# P\n## M1: DONE — Parse\n- a\n## M2: COMPLETE 2025-10-02 - Write\n- b\n## M3: **Done** Lint\n- c\n"
     "## M4: COMPLETE REWRITE\n- [ ] d\n## M5: Sort\n- [ ] e\n", "M1✅ M2✅ M3✅ M4⬚ M5⬚"),
    # A title that asks to complete something is not done.
    ("# P\n## Phase 1: DONE in 4a6075d — Parse\n- a\n## Phase 2: COMPLETE the parser\n- b\n", "1✅ 2⬚"),
    ("# P\n## Phase 1: DONE in 4a6075d — Parse\n- a\n## Phase 2: Add the state: DONE flag\n- b\n", "1✅ 2⬚"),
    ("# P\n## Phase 1: DONE in 4a6075d — Parse\n- a\n## Phase 2: **Complete** the parser\n- b\n", "1✅ 2⬚"),
    # A phase waits for what the parts of others are in.
    ("## Phase 1 — A\n### M-1.1 — Parse\nHow.\n### M-1.2 — Sort\n**Depends on:** M-1.1 (the parser)\n"
     "## Phase 2 — B\n### M-2.1 — Write\n**Depends on:** M-1.2\n", "1⬚ W2 2⬚ <1"),
    # A task waits for what blocks it.
    ("# P\n- [ ] 1. Parse\n  - **Blocks**: Tasks 2\n  - **Blocked By**: None\n- [ ] 3. Sort\n- [ ] 2. Write\n"
     "  - **Blocked By**: Tasks 1, 3 (their types)\n", "1⬚ 3⬚ 2⬚ <1 <3"),
    ("# Phase 3\n### Task 1: A\n**Dependencies:** Phase 2 (the parser)\n### Task 2: B\n"
     "**Dependencies**: Task 1, Phase 2\n", "1⬚ 2⬚ <1"),
    # An open box whose text says done asks.
    ("## Phase 1 — A\n- [ ] **Parse** ✅ DONE (2026-02-27)\n- [ ] Show ✅ beside the name\n",
     "1⬚ W2 | 2! open boxes of phase 1 say done in their texts"),
    # A label says done of the phases below it.
    ("# P\n**Completed in this repository:**\n\n- Phase 1: the parser\n\n## Phase 1 — A\n1. a\n## Phase 2 — B\n1. b\n",
     "1⬚ 2⬚ | 4!"),
    ("# P\n**Done when:**\n\n- Phase 1: the parser\n\n## Phase 1 — A\n1. a\n## Phase 2 — B\n1. b\n", "1⬚ 2⬚"),
    ("# P\n**Shipped so far**\n\n- Phase 1: the parser\n\n## Phase 1 — A\n1. a\n## Phase 2 — B\n1. b\n", "1⬚ 2⬚ | 4!"),
    # Open boxes of a backlog leave no plan complete.
    ("## Phase 1 — A\n- [x] a\n## Phase 2 — B\n- [x] b\n## Backlog\n- [ ] sort\n", "1✅ 2✅ | 6!"),
    ("## Phase 1 — A\n- [x] a\n## Phase 2 — B\n- [ ] b\n## Backlog\n- [ ] sort\n", "1✅ 2⬚"),
    # A table lists the sections that have its ids.
    ("# P\n## Milestone 1: A\n- [x] a\n## Milestone 2: B\n- [ ] b\n**Dependencies**: Requires Milestone 1\n"
     "# Rollout\n## Phase 1: Beta\nNobody knows.\n# Progress\n| Phase | Progress |\n|---|---|\n"
     "| Phase 1: A | ██ 100% |\n| Phase 2: B | ░░ 0% |\n", "1✅ 2⬚ <1"),
    # A status in other words asks.
    ("## Phase 1 — A\nStatus: First version implementada.\n## Phase 2 — B\nStatus: queued\n",
     "1⬚ 2⬚ | 2! phase 1 has a status that may mean done or"),
    ("## Phase 1 — A\nStatus:\n\n- Started. The parser is there.\n## Phase 2 — B\nStatus: queued\n",
     "1⬚ 2⬚ | 2! phase 1 has a status that may mean done or"),
    # A document that tells what was done asks.
    ("# Spike results\n## Phase 1: A\ntext\n## Phase 2: B\ntext\n", "1⬚ 2⬚ | 2! no status of phase 1"),
    ("# Results plan\n## Phase 1: A\n- a\n## Phase 2: B\n- a\n", "1⬚ 2⬚"),
    ("# Migration\n## Phase 1: A\n### Findings\n- slow\n## Phase 2: B\n### Findings\n- slow\n",
     "1⬚ 2⬚ | 2! no status of phase 1"),
    ("# Q\n## Phase 1: A\n**What was done:**\n- a\n## Phase 2: B\n**What was done:**\n- a\n",
     "1⬚ 2⬚ | 2! no status of phase 1"),
    # An open fence that hides phases asks.
    ("## Phase 1 — A\n- [ ] a\n```py\nx = 1\n## Phase 2 — B\n- [ ] b\n",
     "1⬚ | 3! this fence is never closed; the text after it"),
    ("## Phase 1 — A\n- [ ] a\n```py\nx = 1\n## Phase 1 — B\n- [ ] b\n",
     "1⬚ | 3 this fence is never closed; the text after it"),
    # A part that says done over boxes of both kinds is open.
    ("## Phase 1 — A\n### 1.1 Parse ✅\n- [x] a\n- [ ] b\n### 1.2 Sort ✅\n- [x] c\n## Phase 2 — B\n- [ ] d\n",
     "1⬚ W3 2⬚"),
    # Criteria in other languages are no work.
    ("# P\n## Body\nHow.\n**Critérios de aceite:**\n- [ ] it shows\n- [ ] it scrolls\n", "refused: no phases found"),
    ("# P\n## Body\nHow.\n**Critères:**\n- [ ] it shows\n- [ ] it scrolls\n", "refused: no phases found"),
    ("# P\n## Body\nHow.\n**Критерии:**\n- [ ] it shows\n- [ ] it scrolls\n", "refused: no phases found"),
    ("# P\n## Body\nHow.\n**验收标准:**\n- [ ] it shows\n- [ ] it scrolls\n", "refused: no phases found"),
    # The boxes of a review are no work.
    ("## REVIEW — P3-T2 Parser\n### Verdict\n- [x] Approve\n- [ ] Block\n### Issues\nNone.\n",
     "refused: no phases found"),
    # Statuses of which none is known ask.
    ("## Phase 1 — A\n**Status:** Exploring\n## Phase 2 — B\n**Status:** Researching\n",
     "1⬚ 2⬚ | 2! runplan knows none of the statuses of the"),
    ("## Phase 1 — A\n**Status:** Exploring\n## Phase 2 — B\n**Status:** todo\n", "1⬚ 2⬚"),
    # A table may list phases of the past.
    ("# P\n| Phase | Status |\n|---|---|\n| 1 — A | ✅ Done |\n\n## Phase 2 — B\n1. b\n## Phase 3 — C\n1. c\n",
     "2⬚ 3⬚"),
    ("# P\n| Phase | Status |\n|---|---|\n| 1 — A | ✅ Done |\n| 2 — B | ✅ |\n| 3 — C | ⬚ |\n\n## Phase 2 — B\n"
     "1. b\n## Phase 3 — C\n1. c\n", "1✅ 2✅ 3⬚"),
    ("# P\n| Phase | Status |\n|---|---|\n| 1 — A | ✅ Done |\n| 2 — B | ✅ |\n| 3 — C | ⬚ |\n| 4 — D | ⬚ |\n\n"
     "## Phase 2 — B\n1. b\n## Phase 3 — C\n1. c\n", "refused: make them agree"),
    # A range of milestones is one phase.
    ("# P\n## M1 — A\n- [x] a\n## M2-M4\n- [ ] b\n## M5–M6: C\n- [ ] c\n", "M1✅ M2-M4⬚ M5-M6⬚"),
    # Statuses in japanese are read.
    ("## Phase 1: A (完了)\n1. a\n## Phase 2: B (部分実装)\n1. b\n## Phase 3: C (未実装)\n1. c\n", "1✅ 2🟡 3⬚"),
    # Steps of a verification are no phases.
    ("# Release\n## Implementation steps\n### 1. Server\n- ping it\n### 2. Client\n- open it\n", "1⬚ 2⬚"),
    ("# Release\n## Verification steps\n### 1. Server\n- ping it\n### 2. Client\n- open it\n",
     "refused: no phases found"),
    # A line about the status of one phase counts.
    ("# P\n## Plan\n**M0 status:** Complete. It builds.\n### M0 — Base\n- a\n### M1 — Parse\n- b\n",
     "M0⬚ M1⬚ | 3! here the plan says done of step M0, whose"),
    ("# P\n## Plan\n**M0 status:** Completing. It builds.\n### M0 — Base\n- a\n### M1 — Parse\n- b\n", "M0⬚ M1⬚"),
    # A table of other projects has no phases.
    ("## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n## Projects\n| Project | Status |\n|---|---|\n| X2Y | Active |\n",
     "1⬚ 2⬚"),
    ("## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n## Projects\n| Project | Status |\n|---|---|\n| X2 | Active |\n",
     "1⬚ 2⬚ | 8!"),
    # Signs that adorn open boxes ask.
    ("## Phase 1: A\n- [ ] a\n## Phase 2: B ✅\n- [ ] b\n", "1⬚ 2✅ | 4 phase 2 counts as done, but has open boxes"),
    ("## ✅ Phase 1: A\n- [x] a\n## ✅ Phase 2: B\n- [ ] b\n",
     "1✅ 2✅ | 4! phase 2 counts as done, but has open boxes"),
    ("## Phase 1: A\n- [x] a\n## Phase 2: B\n### ✅ Parse\n- [ ] b\n## Phase 3: C\n- [ ] c\n",
     "1✅ 2✅ 3⬚ | 5! phase 2 counts as done, but has open boxes"),
    ("## Phase 1: A\n- [x] a\n## Phase 2: B\n### ✅ Parse (done)\n- [ ] b\n## Phase 3: C\n- [ ] c\n",
     "1✅ 2✅ 3⬚ | 5 phase 2 counts as done, but has open boxes"),
    ("## Phase 1: A\n- [x] a\n## Phase 2: B\n### ✅ Parse\n- [ ] b\n### Sort\n- [x] d\n## Phase 3: C\n- [ ] c\n",
     "1✅ 2✅ W2 3⬚ | 5 phase 2 counts as done, but has open boxes"),
    # The design of a feature of spec kit is no plan.
    ("# Implementation Plan: Login\n## Technical Context\nGo.\n## Constitution Check\n- [x] small\n"
     "## Phase 0: Research\nHow?\n## Phase 1: Design\n- [ ] draw\n",
     "refused: this is the design of a feature of spec-kit"),
    # The steps of a guide ask.
    ("# Migration Guide\n## Migration steps\n### Step 1: Parse\nHow.\n### Step 2: Write\nHow.\n", "1⬚ 2⬚ | 3!"),
    ("# 指南\n## Migration steps\n### Step 1: Parse\nHow.\n### Step 2: Write\nHow.\n", "1⬚ 2⬚ | 3!"),
    ("# Guide plan\n## Migration steps\n### Step 1: Parse\nHow.\n### Step 2: Write\nHow.\n", "1⬚ 2⬚"),
    ("# Moving\n## Migration steps\n### Step 1: Parse\nHow.\n### Step 2: Write\nHow.\n", "1⬚ 2⬚"),
    # Ways to do something are no phases.
    ("# P\n## 迁移步骤\n### 方法 1：Parse\n1. a\n### 方法 2：Write\nb\n", "refused: no phases found"),
    # A range of stories has no dependencies of the first.
    ("## Phase 1: Setup\n- [ ] T001 a\n## Phase 2: User Story 1 - A\n- [ ] T002 b\n## Phase 3: User Story 2 - B\n"
     "- [ ] T003 c\n## Dependencies\n- **User Stories (Phase 2+)**: Depend on Phase 1; US2 requires the base\n"
     "- US2: After US1\n", "1⬚ 2⬚ <1 3⬚ <1 <2"),
    # A section without a number beside numbered ones asks.
    ("# P\n## Proposed Changes\n### Core routes\n- mount them\n### 1. Parser\n- a\n### 2. Writer\n- b\n"
     "## Verification\n- c\n", "1⬚ 2⬚ | 3! this may be work, and belongs to no phase"),
    ("# P\n## Proposed Changes\n### Overview\n- mount them\n### 1. Parser\n- a\n### 2. Writer\n- b\n"
     "## Verification\n- c\n", "1⬚ 2⬚"),
    # The open parts of a report are no phases.
    ("# Test report\n## Results\n### 1. Parser (12 tests) ✅\n- fast\n### 2. Writer (3 tests) ✅\n- slow\n"
     "### 3. Page ⬜\n- soon\n", "1✅ 2✅ 3⬚ | 7! no status of step 3"),
    ("# 테스트 보고서\n## Results\n### 1. Parser (12 tests) ✅\n- fast\n### 2. Writer (3 tests) ✅\n- slow\n"
     "### 3. Page ⬜\n- soon\n", "1✅ 2✅ 3⬚ | 7! no status of step 3"),
    ("# 测试报告\n## Results\n### 1. Parser (12 tests) ✅\n- fast\n### 2. Writer (3 tests) ✅\n- slow\n### 3. Page ⬜\n"
     "- soon\n", "1✅ 2✅ 3⬚ | 7! no status of step 3"),
    ("# Plan\n## Results\n### 1. Parser (12 tests) ✅\n- fast\n### 2. Writer (3 tests) ✅\n- slow\n### 3. Page ⬜\n"
     "- soon\n", "1✅ 2✅ 3⬚"),
    # A box behind a number with a dot is a box.
    ("# P\n1. [x] Parse it\n1.1 [ ] Try it live\n2. [ ] Sort it\n", "1✅ 2⬚ 3⬚"),
    # Tables of open rows beside boxes ask.
    ("## Build\n| Today | Wanted | Status |\n|---|---|---|\n| old | new | ⬜ todo |\n| slow | fast | ⬜ todo |\n"
     "## Else\n- [ ] a\n- [ ] b\n", "a⬚ b⬚ | 2! this may be work, and belongs to no phase"),
    ("## Build\n| Today | Wanted | Status |\n|---|---|---|\n| old | new | ✅ |\n| slow | fast | ✅ |\n## Else\n"
     "- [ ] a\n- [ ] b\n", "a⬚ b⬚"),
    # A line that goes on with done counts.
    ("# P\n## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n## Now\n- **Phase 1 已完成：** the parser\n", "1⬚ 2⬚ | 7!"),
    ("# P\n## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n## Now\n- Phase 1 complete: the parser\n", "1⬚ 2⬚ | 7!"),
    ("# P\n## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n## Now\n- Phase 1: Complete the parser\n", "1⬚ 2⬚"),
    ("# P\n## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n## Now\n- Phase 1 complete except the docs\n", "1⬚ 2⬚"),
    # A section with an open status beside phases asks.
    ("# P\n## Phase 1: A\n- [ ] a\n## Cache\nStatus: not started\nHow.\n",
     "1⬚ | 4! this may be work, and belongs to no phase"),
    ("# P\n## Phase 1: A\n- [ ] a\n## Cache\nStatus: shipped\nHow.\n", "1⬚"),
    ("# P\n## Phase 1: A\n- [ ] a\n## Overview\nStatus: not started\nHow.\n", "1⬚"),
    # Steps in an order are work.
    ("# Reader\n## Build Order\n### Step 1: Base\nHow.\n### Step 2: Parser\nHow.\n", "1⬚ 2⬚"),
    # A blank more nests no box.
    ("# P\n## 1. Base\n- [x] 1.1 Parse\n - [ ] 1.2 Sort\n   - [ ] by name\n## 2. Page\n- [ ] 2.1 Show\n", "1⬚ W2 2⬚"),
    ("- [x] Parse it\n - [ ] Sort it\n", "1✅ 2⬚"),
    ("- [x] Parse it\n  - [ ] Sort it\n- [ ] Show it\n", "1✅ 2⬚"),
    # A note that retains the document asks.
    ("# P\n> **Note:** the old one is gone. This document is retained as context\n## Phase 1: A\n1. a\n"
     "## Phase 2: B\n1. b\n", "1⬚ 2⬚ | 2! the plan says here that it is set aside, but"),
    ("# P\n> **Note:** the old one is gone. This document is retained\n> as context\n## Phase 1: A\n1. a\n"
     "## Phase 2: B\n1. b\n", "1⬚ 2⬚ | 2! the plan says here that it is set aside, but"),
    ("# P\n> **Note:** the old one is gone. This document is meant as context\n## Phase 1: A\n1. a\n"
     "## Phase 2: B\n1. b\n", "1⬚ 2⬚"),
    # A tracker lists sections that count with another word.
    ("# P\n## Progress Tracker\n| # | Fix | Status |\n|---|---|---|\n| 1 | Lock it | ☑ |\n| 2 | Close it | ☐ |\n"
     "## Soon\n### Fix 1: Lock it\nHow.\n## Later on\n### Fix 2: Close it\n- [ ] tested\n", "1✅ 2⬚"),
    # The boxes of a last verification are no phase.
    ("## Task 1: A\n- [ ] a\n## Task 2: B\n- [ ] b\n## 最终验证\n- [ ] all tests\n", "1⬚ 2⬚"),
    ("## Task 1: A\n- [ ] a\n## Task 2: B\n- [ ] b\n## 最终清理\n- [ ] all tests\n", "1⬚ 2⬚ | 6!"),
    # An open box beside ticked ones below a ticked box is open.
    ("# P\n## v1\n- [x] Lists\n  - [x] show\n  - [ ] sort\n## v2\n- [x] Pages\n  - [ ] print\n", "v1⬚ v2✅"),
    # Phases that repeat in tasks are their parts.
    ("# P\n## Task 1: Parse\n#### Phase 1: Red\n- [ ] fail\n#### Phase 2: Green\n- [ ] pass\n## Task 2: Sort\n"
     "#### Phase 1: Red\n- [ ] fail\n#### Phase 2: Green\n- [ ] pass\n", "1⬚ W2 2⬚ W2"),
    # Statuses and counts are read as they come.
    ("# P\n| No. | State |\n|--|--|\n| 1.1.0 | Done |\n| 1.2.x | 计划中 |\n## 1.1.0：A\n- a\n## 1.2.x：B\n- b\n",
     "1.1.0✅ 1.2.x⬚"),
    ("# P\n| No. | State |\n|--|--|\n| V0 | ✅ |\n| V1 | ⏳ 計劃中 |\n## 🗓 V0 Milestone\n- [ ] a\n## V1 Milestone\n"
     "- [ ] b\n", "V0✅ V1⬚"),
    ("# P\n| No. | State |\n|--|--|\n| 1. A | 🔄 |\n| 2. B | ⬜ |\n## Fase 1: A\n- [x] a\n## Fase 2: B\n- [ ] b\n",
     "1🟡 2⬚"),
    ("# P\n| # | Fact |\n|--|--|\n| 1 | ✅ |\n| 2 | ✅ |\n## Fase 1: A\n- [ ] a\n## Fase 2: B\n- [ ] b\n", "1⬚ 2⬚"),
    ("# Plan\n## Parts\n### 1. X\n- x\n### 2. Y\n- y\n### 3. Z\n- z\n## Plan\n### V1: A\n- a\n### V2: B\n- b\n",
     "V1⬚ V2⬚"),
    ("# P\n## M1: A\n| Task |\n|--|\n| a |\n## M2: B\n| Task |\n|--|\n| b |\n", "M1⬚ M2⬚"),
    ("# P\n## Salve A ✅\n- a\n## Salve B — B\n- b\n", "A✅ B⬚"),
    ("# P\n## 步骤\n### 第一步：A\n- a\n### 第二步：B\n- b\n", "1⬚ 2⬚"),
    ("# P\n## Solution\n### Step 1: A\nHow.\n### Step 2: B\nHow.\n", "1⬚ 2⬚"),
    ("# P\n## Phase A — X\n### M1: a\n- [x] a\n## Phase B — Y\n- [ ] b\n\nDepends: M1\n", "A✅ B⬚ <A"),
    ("---\nstatus: planned\n---\n## Phase 1: A\n- [ ] a\n", "1⬚"),
    ("# P\n## F1 Search — ✅\n- a\n## F2 Timeline — ⬜\n- b\n## F3 Chat 🟡\n- c\n", "F1✅ F2⬚ F3🟡"),
    ("# P\n## Q1 2026\n- [ ] a\n## Q2 2026\n- [ ] b\n", "1⬚ 2⬚"),
    ("<!--\n## Phase 9: Example, complete\n-->\n## Phase 1: A\n- [ ] a\n", "1⬚"),
    ("## Phase 1: A\n- [✅] a\n## Phase 2: B\n- [ ] b\n", "1✅ 2⬚"),
    # Work and statuses beside phases without a status ask.
    ("## Phase 1: A\n- a\n## Help desk\n- c\n## Phase 2: B\n- b\n", "1⬚ 2⬚ | 3!"),
    (f"{BARE}## Found in phase 1\n### 1. 🔲 Types\nWhy.\n", "1⬚ 2⬚ | 6!"),
    ("## Phase 1: A\n- a\n## Phase 2: B\n- ✅ b\n- c\n", "1⬚ 2⬚ | 3!"),
    (f"{BARE}## Status (2026-08-21)\n| Phase | Shipped |\n|--|--|\n| 1 | a |\n| 2 | b |\n", "1⬚ 2⬚ | 1!"),
    (f"{BARE}### Estado\nEntregue: a. Pendente da fase 2: b\n", "1⬚ 2⬚ | 1!"),
    (f"{BARE}## Now\n1. ✅ a\n2. 🔄 b\n", "1⬚ 2⬚ | 1!"),
    (f"{BARE}- c\n- c\n- c\n- c\n- c\n- c\n## UI\n### Tuần 1 — U\n- u\n### Tuần 2 — U\n- u\n### Tuần 3 — U\n- u\n",
     "1⬚ 2⬚ | 12!"),
    (f"# P\n**Status:** v0.1 implemented\n{BARE}", "1⬚ 2⬚ | 2!"),
    ("## X\n### 1. a\n- a\n### 2. b\n- b\n## Y\n### 3. c\n- c\n## Work\n### Phase 1: A\n- a\n### Phase 2: B\n- b\n",
     "1⬚ 2⬚ | 2!"),
    # Headings that repeat or count something else are refused.
    ("# P\n### Sprint 1: A\n- [ ] a\n### Sprint 2: B\n- [ ] b\n## Details\n### SPRINT 1: A\nHow.\n",
     "refused: this heading repeats the one on line 2; leave the"),
    ("# P\n## The flow\n#### Stage 1: Enter\n- a\n#### Stage 2: Pay\n- b\n", "refused: no phases found"),
    ("# P\n## Option A ✅\n- a\n## Option C\n- c\n", "refused: no phases found"),
    ("# P\n## 2. Constitution Check\n## Technical Context\n## Phase 0: Research\n- a\n## Phase 1: Design\n- b\n",
     "refused: this is the design of a feature of spec-kit,"),
    # Struck boxes are no work and are named.
    ("## Phase 1: A\n- [x] a\n- [ ] ~~b~~\n## Phase 2: B\n- [ ] c\n- [x] ~~d~~\n",
     "1✅ 2⬚ | 3 struck-through boxes of phase 1 are no work"),
    # A word before the colon and a word beside a mark are read.
    ("## Phase A — Parse\n\n- [ ] a\n\n## Phase B — BLOCKED: full rendering\n\n- [ ] b\n", "A⬚ B🔴"),
    ("### Task 1: Jitter ✅ CONFIRMED\n\n- a\n\n### Task 2: Leak ✅\n\n- b\n", "1⬚ 2✅ | 1!"),
    # An entry without the word in brackets that others have asks.
    ("- [done] a\n- b\n- [todo] c\n", "a✅ c⬚ | 2!"),
    ("1. a\n\n## B\n2. [done] b\n## C\n3. [done] c\n", "B✅ C✅ | 1!"),
    # Notes beside a word in brackets and links are no boxes.
    ("- [done] open\n- [todo] close\n## Notes\n- c\n- [planned](x.md) d\n", "1✅ 2⬚"),
    # Statuses that disagree are named.
    ("## Phase 1: A ✅\n- [x] a\n- [ ] b\n## Phase 2: B\n- [ ] c\n",
     "1✅ 2⬚ | 3! phase 1 counts as done, but has open boxes"),
    ("## Phase 1: A\n**Status:** Done\n- [ ] b\n", "1✅ | 3 phase 1 counts as done, but has open boxes"),
    ("## Phase 1: A\n**Status:** ✅ Done (abc1234)\n- [ ] b\n", "1✅"),
    ("- [x] Wash\n  - [ ] rinse\n", "1✅ | 2 phase 1 counts as done, but has open boxes"),
    ("# T\n**Status:** ✅ Complete\n## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [x] b\n",
     "1⬚ 2✅ | 2 the plan says here that it is done, but not"),
    ("## Phase 1: A\n- [x] T001 a\n### Test Cases\n- [ ] b\n## Phase 2: B\n- [ ] T002 c\n",
     "1✅ 2⬚ <1 | 4 phase 1 counts as done, but has open boxes"),
    ("## Phase 1: A\n- **Status**: [NOT STARTED]\n", "1⬚"),
    ("# T\n**Status:** Draft\n## Phase 1: A\n- [ ] a\n", "1⬚"),
    # Lists beside the work are no phases.
    ("## Setup\n- [ ] a\n## Build\n- [ ] b\n## Success Metrics\n- [ ] 10 ms\n",
     "1 Setup ⬚ 2 Build ⬚ | 6 boxes under 'Success Metrics' belong to no"),
    (f"{OPEN}## Success Metrics\n### Phase 1: A\n10 ms\n", "1 A ⬚ 2 B ⬚ | 6 sections 'Phase <number>' are no phases"),
    ("## Success Metrics\n### Phase 1: Fast\n10 ms\n## Work\n### Phase 1: A\n- [ ] a\n### Phase 2: B\n- [ ] b\n",
     "1 A ⬚ 2 B ⬚ | 2 sections 'Phase <number>' are no phases"),
    ("## 1. A\n- [ ] a\n## 2. B\n- [ ] b\n## 3. Success Metrics\n10 ms\n", "1 A ⬚ 2 B ⬚"),
    ("## v1.0\n- [x] a\n## v1.1\n### Core\n- [ ] b\n### Docs\n- [ ] c\n", "v1.0✅ v1.1⬚"),
    ("## Work\n### 1. A\n- [ ] a\n### 2. B\n- [ ] b\n## Dates\n### Q1 2026\n- [ ] a\n",
     "1 1. A ⬚ 2 2. B ⬚ 3 Q1 2026 ⬚"),
    ("## Phase 1: A\n### Changes\n#### 1. B\n#### 2. C\n### Success Criteria:\n#### Automated Verification:\n"
     "- [ ] tests pass\n#### Manual Verification:\n- [ ] it looks right\n", "1 A ⬚"),
    ("## Success Criteria\nfast\n### Task 1: A\n- [ ] a\n### Task 2: B\n- [ ] b\n", "1 A ⬚ 2 B ⬚"),
    ("## Server\n### Disk\n- [ ] a\n### Net\n- [ ] b\n", "1 Disk ⬚ 2 Net ⬚"),
    ("## Completed\n- [x] old\n## Server\n- [ ] a\n## Client\n- [ ] b\n",
     "1 Server ⬚ 2 Client ⬚ | 2 boxes under 'Completed' belong to no phase"),
    ("## Phase 1: A\n- [x] a\n## Phase 2: B\n- [ ] b\n## Completed\n- [x] Phase 1: A\n",
     "1 A ✅ 2 B ⬚ | 6 boxes under 'Completed' belong to no phase"),
    ("## A\n- [ ] a\n## B\n- [ ] b\n**Exit criteria**:\n- [ ] c\n## Quality Checklist\n### Before\n- [ ] d\n",
     "A⬚ B⬚ | 9 boxes under 'Before'"),
    ("## A\n- [ ] Phase 2 check\n- [ ] b\n## B\n- [x] Phase 3: c\n- [x] Phase 3: d\n- [x] e\n- [x] f\n- [x] g\n",
     "A⬚ B✅"),
    ("## 1. A\n- [ ] a\n## 2. B\n- [ ] b\n## 3. Recommended Implementation Order\n1. A\n", "1 A ⬚ 2 B ⬚"),
    # Headings of many kinds are phases.
    ("## Phase 1: A ✅\n## Phase 2: B\n- [ ] b\n### Phase 2.1: C\n- [ ] c\n### Phase 2a: D\n", "1✅ 2⬚"),
    ("## Phase 1: A\n### Phase 1: x\n### Phase 3: y\n- [x] a\n## Phase 2: B\n- [ ] b\n", "1✅ 2⬚"),
    ("## Phase 1 Overview\ntext\n## Work\n### Phase 1: A\n- [x] a\n### Phase 2: B\n- [ ] b\n", "1✅ 2⬚"),
    ("## Phase 1: A ✅\n**Status:** runs every day\n## Phase 2: B\n- [ ] b\n", "1✅ 2⬚"),
    ("## Phase 1：A\n**Status**：Done\n## Phase 2：B\n**Status：** Blocked\n", "1✅ 2🔴"),
    ("## Phase 1: A\n**状态：** ✅ 已完成\n- [ ] a\n## Phase 2: B\n- [ ] b\n", "1✅ 2⬚"),
    ("## Week 1–2: A\n- [x] a\n## Weeks 3-4: B\n- [ ] b\n", "1-2✅ 3-4⬚"),
    ("## Étape 1 : A\n- [x] a\n## Étape 2 : B\n- [ ] b\n", "1✅ 2⬚"),
    ("## 阶段1：A ✅\n## 阶段2：B\n- [ ] b\n", "1✅ 2⬚"),
    ("### 🔴 **CRITICAL - Phase 1: A** (1 week)\n- [x] a\n### LOW - Phase 2: B\n- [ ] b\n", "1✅ 2⬚"),
    ("## Phase 1: A\n- [x] T1: a\n## Phase 2: B\n- [ ] T2: b\n  - Depends: T1\n", "1✅ 2⬚ <1"),
    ("## Legend\n- [ ] open\n## Group 1: A\n- [x] a\n## Group 2: B\n- [ ] b\n", "1✅ 2⬚"),
    ("**Phase 1: A** (soon)\n- [x] a\n\n**Phase 2 — B**\n\n**Tasks:**\n- [ ] b\n## Notes\n- c\n", "1✅ 2⬚"),
    ("**Phase 1: A**\n- [x] a\n**Phase 2: B** is prose\n", "a✅"),
    ("**Phase 1: A**\n- [x] a\n**Phase 2: B**\n- b\n### Task 1: C\n- [x] c\n### Task 2: D\n- [ ] d\n", "1✅ 2⬚"),
    # A plan that says done and todo of a phase asks.
    (f"# T\nCompleted:\n- Phase 1: A\n{OPEN}", "1⬚ 2⬚ | 3!"),
    (f"# T\n### Done ✅\n\n- **Phase 2**: B\n{OPEN}", "1⬚ 2⬚ | 4!"),
    (f"# T\n- [x] Phase 1: A\n{OPEN}", "1⬚ 2⬚ | 2!"),
    (f"# T\n- ✅ Phase 1: A\n{OPEN}", "1⬚ 2⬚ | 2!"),
    (f"# T\n**Current status:** Phases 1–2 are complete\n{OPEN}", "1⬚ 2⬚ | 2!"),
    (f"{OPEN}\n**PHASE 2 COMPLETED: 2026-03-12**\n", "1⬚ 2⬚ | 6!"),
    ("# T\n**Status:** implemented, see the README\n## Stage 1: A\ntext\n## Stage 2: B\ntext\n", "1⬚ 2⬚ | 2!"),
    ("## Phase 1: A ✅\n## Ideas\n### Phase 2: B\ntext\n", "1✅ | 3!"),
    ("## Phase 1: A ✅\n## Phase 2 readiness\ntext\n", "1✅ 2⬚ | 2!"),
    (f"# T\n```\nPhase 1 ─── A ███ ✅\n```\n{OPEN}", "1⬚ 2⬚ | 3!"),
    ("## Phase 1: A\ntext\n## Phase 2: B\ntext\n## State\n### Phase 1\n- [x] a\n### Phase 2\n- [ ] b\n", "1⬚ 2⬚ | 1!"),
    ("# T\n**Status:** Complete, but B remains\n## Phase 1: A\n- [x] a\n## Phase 2: B\n## Phase 3: C\n",
     "1✅ 2⬚ 3⬚ | 2!"),
    ("## Phase 1: A\n| Id | Status |\n|--|--|\n| T1 | [x] |\n| T2 | [ ] |\n## Phase 2: B\nb\n", "1⬚ 2⬚ | 1!"),
    ("# T\n## What was implemented\n### 1. A\n- a\n### 2. B\n- b\n", "1⬚ 2⬚ | 3!"),
    ("## Phase 1: A\n1. [x] a\n2. b\n## Phase 2: B\n- [ ] c\n", "1✅ 2⬚ | 3!"),
    ("## Phases\n| Phase | Status |\n|--|--|\n| 1 | 📋 Pending |\n| 2 | ⬚ |\n## Phase 1: A ✅\n- [ ] a\n"
     "## Phase 2: B\n- [ ] b\n", "1⬚ 2⬚ | 4!"),
    (f"# T\n> **Historical document.** It led to the first version.\n{OPEN}", "1⬚ 2⬚ | 2!"),
    # A sentence about a phase is no status.
    (f"# T\nOpen:\n- Phase 1: A\n\nCompleted:\n- the design\n\nNext:\n- Phase 2: B\n{OPEN}", "1⬚ 2⬚"),
    (f"# T\n- [ ] Phase 1: A ends when all is done\n- Week 1: Phase 1 complete\n{OPEN}", "1⬚ 2⬚"),
    (f"# T\n**Status:** starts after phase 1 of the other plan\n{OPEN}\nPhase 2 is complete when b holds.\n", "1⬚ 2⬚"),
    (f"# T\n- ✅ Phase 1: A (partially)\n- Phase 2: B (complete, 1-2 days)\n{OPEN}", "1⬚ 2⬚"),
    # A list of boxes that names the phases is their status.
    ("- [x] Phase 1\n- [ ] Phase 2: B\n## Phase 1: A\ntext\n## Phase 2: B\ntext\n", "1✅ 2⬚"),
    ("- [x] Fase 1\n- [ ] Fase 2: B\n## Fase 1: A\ntext\n## Fase 2: B\ntext\n", "1✅ 2⬚"),
    ("- [x] 1. A\n- [ ] 2. B\n## Phase 1: A\ntext\n## Phase 2: B\ntext\n", "1✅ 2⬚"),
    ("## Milestone 1: A\ntext\n## Milestone 2: B\n## Progress\n- [x] Milestone 1\n- [ ] Milestone 2\n", "1✅ 2⬚"),
    ("### Task 1: A\ntext\n### Task 2: B\n## Status\n- [x] 1. A\n- [ ] 2. B\n", "1✅ 2⬚"),
    ("## Phase 1: A\n## Phase 2: B\n## Acceptance Criteria\n- [x] 1. fast\n- [x] 2. safe\n", "1⬚ 2⬚ | 1!"),
    ("## Phase 1: A\n## Phase 2: B\n## Notes\n- [x] 1. A\n", "1⬚ 2⬚ | 1!"),
    ("- [x] 1. A\n- [x] 2. B\n## Phase 1: A\n- [x] a\n## Phase 2: B\n- [ ] b\n", "1✅ 2⬚"),
    # A plan of done phases asks about sections that may be open.
    (f"---\nstatus: complete\n---\n{DONE}## Remaining Work\n- the docs\n", "1✅ 2✅ | 8 'Remaining Work'"),
    (f"{DONE}## Remaining Work\n- the docs\n", "1✅ 2✅ | 5! 'Remaining Work'"),
    (f"{DONE}## 🔧 Rework\n### 1. Reader\ntext\n", "1✅ 2✅ | 5! '🔧 Rework'"),
    (f"{DONE}## Outstanding\n- [x] c\n- [ ] d\n", "1✅ 2✅ | 6 under 'Outstanding' | 7! under 'Outstanding'"),
    (f"{DONE}## Polish\n- [ ] d\n", "1✅ 2✅ | 6! under 'Polish'"),
    (f"{DONE}## Sprint 2\n- [ ] c\n", "1✅ 2✅ | 6! under 'Sprint 2'"),
    (f"{DONE}## Tracker\n| Phase | Status |\n|--|--|\n| 1 | Done |\n| 2 | Done |\n## Rework\n- c\n",
     "1✅ 2✅ | 10! 'Rework'"),
    (f"{DONE}## Known gaps\n- None\n- ✅ c\n", "1✅ 2✅"),
    (f"{DONE}## Remaining Work\n- [x] c\n", "1✅ 2✅ | 6 'Remaining Work'"),
    (f"{DONE}## Remaining Work (done)\n- c\n", "1✅ 2✅"),
    (f"{DONE}## Future ideas\n- [ ] c\n", "1✅ 2✅"),
    (f"{DONE}## Success Criteria\n- [ ] c\n", "1✅ 2✅"),
    (f"{DONE}## Open questions\n- c\n", "1✅ 2✅"),
    # Work beside the phases makes a plan ambiguous.
    (f"{OPEN}## Clean-up\n- [ ] c\n", "1⬚ 2⬚ | 6! runplan plan --file plans/p.md"),
    (f"{BARE}## Dates\n### Week 1\n- [ ] b\n### Week 2\n- [ ] c\n", "1⬚ 2⬚ | 7! runplan plan --file plans/p.md"),
    ("## 3. Base (Phase 0)\n- a\n## 4. Phase 1: B\n- b\n", "1⬚ | 1! the section '3. Base (Phase 0)'"),
    ("### M1: A\n- [ ] a\n### M2: B\n- [ ] b\n## Next: M3\n- c\n", "M1⬚ M2⬚ | 5! runplan plan --file plans/p.md"),
    (f"{OPEN}## Later\n### Phase 3: C\n- [ ] c\n", "1⬚ 2⬚ | 6! runplan plan --file plans/p.md"),
    (f"{OPEN}### Phase 3: C\n- [ ] c\n", "1⬚ 2⬚ | 5! runplan plan --file plans/p.md"),
    ("### M1 · A\n- [ ] a\n### M2 · B\n- b\n### M3 · C\n- c\n", "a⬚ | 3! runplan plan --file plans/p.md"),
    ("## Docs\n- [ ] a\n## Gaps\n| # | Gap | Work state |\n|--|--|--|\n| 2 | b | ⬜ |\n",
     "a⬚ | 6! runplan plan --file plans/p.md"),
    ("## First cut\n- a\n## Phase 2: B\n- b\n## Phase 3: C\n- c\n", "2⬚ 3⬚ | 1! runplan plan --file plans/p.md"),
    ("## Overview\n- a\n## Phase 2: B\n- b\n## Phase 3: C\n- c\n", "2⬚ 3⬚"),
    (f"> Historical record of what shipped: the changelog\n{OPEN}", "1⬚ 2⬚"),
    ("## Feature 1\n- a\n- b\n## Feature 2\n- a\n- b\n## Feature 3\n- a\n- b\n## Phase A: X\n- 1\n## Phase B: Y\n"
     "- 2\n", "A⬚ B⬚ | 1! the sections 'Feature <number>'"),
    ("PHASE 1: A\n  a\nPHASE 2: B\n  b\n## Targets\n- [ ] c\n- [ ] d\n", "c⬚ d⬚ | 1! runplan plan --file plans/p.md"),
    ("## Chores\n- [ ] a\n- [ ] b\n## 1. A\n- c\n## 2. B\n- d\n", "a⬚ b⬚ | 4! runplan plan --file plans/p.md"),
    (f"{OPEN}## Rest\n| Id | Task | Status |\n|--|--|--|\n| T7 | c | open |\n| T8 | d | todo |\n",
     "1⬚ 2⬚ | 9! runplan plan --file plans/p.md"),
    ("## Lot 1: A\n- [ ] a\n## Lot 2: B\n- [ ] b\n## Now\n| Lot | State |\n|--|--|\n| 1 | Done |\n",
     "1⬚ 2⬚ | 8! runplan plan --file plans/p.md"),
    (f"{OPEN}## State\n| # | Risk | State |\n|--|--|--|\n| 1 | A | Done |\n", "1⬚ 2⬚"),
    (f"{OPEN}## Test plan\n### By hand\n- [ ] c\n## Later\n- [ ] d\n## Prerequisites\n- [ ] e\n", "1⬚ 2⬚"),
    (f"{OPEN}## Gates\n### Phase 1 gate\n- [ ] c\n## Order\n- [ ] Phase 1 first\n- [x] d\n", "1⬚ 2⬚"),
    (f"{OPEN}## Notes on Phase 2b and Phase 2.1\n- c\n", "1⬚ 2⬚"),
    ("## Tracker\n| Phase | Status |\n|--|--|\n| 1 | ⬚ |\n## Phase 1\n- a\n## Chores\n- [ ] b\n", "1⬚"),
    # Done beside boxes of both kinds is refused.
    ("## Phase 1: A ✅\n- [x] a\n- [ ] b\n## Phase 2: B\n- [ ] c\n", "1✅ 2⬚ | 3!"),
    ("## Phase 1: A\n**Status:** done\n- [x] a\n- [ ] b\n## Phase 2: B\n- [ ] c\n", "1✅ 2⬚ | 4!"),
    ("## Phase 1: A\n**Status:** ✅ Done (abc1234)\n- [x] a\n- [ ] b\n## Phase 2: B\n- [ ] c\n", "1✅ 2⬚"),
    ("## Phase 1: A ✅\n- [ ] a\n- [ ] b\n## Phase 2: B\n- [ ] c\n", "1✅ 2⬚"),
    ("## Phase 1: A ✅\n- [x] a\n    - [ ] b\n## Phase 2: B\n- [ ] c\n", "1✅ 2⬚"),
    # A sub task of a task without a box is refused.
    ("- [x] 1. A\n  - [x] 1.1 a\n- [ ]-2. B\n  - [ ] 2.1 b\n- [ ] 3. C\n", "1✅ 3⬚ | 1!"),
    # Headings that count with another word are named.
    (f"{OPEN}## Sprint 2: B\n- b\n## Sprint 3: C\n- c\n", "1⬚ 2⬚ | 5 sections 'Sprint <number>' are no phases and"),
    (f"{OPEN}## Lot 1: A\n## Lot 2: B ✅\n", "1⬚ 2⬚ | 5 sections 'Lot <number>' are no phases and are"),
    (f"{OPEN}### Step 1: a\n### Step 2: b\n", "1⬚ 2⬚"),
    (f"{OPEN}## Option 1: A\n## Option 2: B\n", "1⬚ 2⬚"),
    (f"{OPEN}## Remaining Work\n- b\n", "1⬚ 2⬚"),
    # A word that counts is ambiguous unless every section has items.
    ("## Bloque 1: A\n- [ ] a\n## Bloque 2: B\ntext\n", "refused: p.md:3: other sections 'Bloque <number>' have"),
    ("## Schritt 1: A\nText\n## Schritt 2: B\nText\n", "refused: no phases found"),
    # A plan that may be done is refused.
    ("## ✅ Detailed tasks\n### Phase 1: A\ntext\n### Phase 2: B\ntext\n", "1⬚ 2⬚ | 2!"),
    ("## Completed work\n### Phase 1: A\ntext\n## Next\n### Phase 2: B\n- [ ] b\n", "1⬚ 2⬚ | 2!"),
    ("# Plan (complete)\n## Phase 1: A\ntext\n## Phase 2: B\n- [ ] b\n", "1⬚ 2⬚ | 2!"),
    ("## Phase 1: A\ntext\n## Phase 2: B ✅\n", "1⬚ 2✅ | 1!"),
    ("## Phase 1: A\n- ✅ a\n## Phase 2: B\n- ✅ b\n", "1⬚ 2⬚ | 1!"),
    ("## Phase 1: A\n### ✅ A1\n## Phase 2: B\n### ✅ B1\n## State\n**Status:** Ready\n", "1✅ 2✅ | 6!"),
    ("### 1.1 A\n- [x] a\n### 1.2 B\n- [ ] b\n### Later\n- [ ] c\n## Completed\n| Task |\n|--|\n| 1.2 B |\n",
     "1✅ 2⬚ 3⬚ | 10!"),
    ("# T\nStatus: done. See below.\n## Phase 1: A\ntext\n", "1⬚ | 2!"),
    ("# T\n**Estado:** Implementado (v3)\n## A\n- [ ] a\n## B\n- [ ] b\n", "A⬚ B⬚ | 2!"),
    ("## Ready\n- [x] a\n## Next\n### 1. B\n- b\n### 2. C\n- c\n## Later\n- [ ] d\n", "1✅ 2⬚ | 4!"),
    # Statuses and names that stand elsewhere are read.
    ("## Phase 1: A\n### ✅ A1\n### ~~A2~~\n## Phase 2: B\n### ✅ B1\n### B2\n**Status:** Done\n", "1✅ 2⬚"),
    ("## Done\n- [x] a\n## Pending\n- [ ] None\n## Blocked\n- [ ] N/A - see a\n- [ ] -\n- [ ] None of b\n", "1✅ 2⬚"),
    ("## 二、Phase 0：A\n- [x] a\n## 三、Phase 1：B\n- [ ] b\n", "0✅ 1⬚"),
    ("## 38.1 Phase 1: A\n- [x] a\n## IV. Phase 2: B\n- [ ] b\n", "1✅ 2⬚"),
    ("## Stufe 1: A ✅\n## ⏳ Stufe 2: B\ntext\n", "1✅ 2⬚"),
    ("### 第1阶段：A\ntext\n### 第2阶段：B\ntext\n", "1⬚ 2⬚"),
    ("### 第一阶段：A\n- [x] a\n### 阶段十二：B\n- [ ] b\n### 第二十阶段\n- [x] c\n", "1✅ 12⬚ 20✅"),
    ("## ✅ SEMANA 1-2: A (Completado)\n## ⏳ Semana 3: B (Pendiente)\n", "1-2✅ 3⬚"),
    ("## Phase 1: A\n- Estado: Completado\n## Phase 2: B\n- Estado: Implementado parcialmente\n", "1✅ 2⬚"),
    ("# T\n**Estado**: 95% completado ✅\n## Semana 1: A\n- a\n## Semana 2: B\n- b\n", "1⬚ 2⬚"),
    ("## Phase 1: A\n- [x] a\n  - [ ] b\n## Phase 2: B\n- [ ] c\n  - [x] d\n", "1✅ 2⬚"),
    ("## 1. A\n| ID | Task |\n|--|--|\n| T001 | a |\n## 2. B\n| ID | Task |\n| T002 | b |\n", "1⬚ 2⬚"),
    ("## Fase 1A — A (concluída)\n## **Fase 2**: B\ntext\n", "1A✅ 2⬚"),
    ("## Phase 1 (May): A\ntext\n## Phase 2 (June): B\ntext\n", "1⬚ 2⬚"),
    ("## Phase 1: A\n### Status\n**Completed**\n### Work\na\n## Phase 2: B\n### Status\nOpen\n", "1✅ 2⬚"),
    ("## 🚧 Phase 1: A\n- [ ] a\n## ⬜ Phase 2: B\n- [ ] b\n", "1🟡 2⬚"),
    ("## Phase A (now): A\ntext\n## Phase B（later）：B\ntext\n", "A⬚ B⬚"),
    ("## M0 - A\n- Status: Completed\n## M1 - B\n- Status: Deferred (to v2)\n", "M0✅ M1🔴"),
    # Struck entries strange brackets and placeholders.
    ("## Phase 1: A\n- ~~a~~ b\n- c\n## Phase 2: B\n- b\n", "1⬚ 2⬚"),
    ("## Phase 1: A\n- [ ] ~~a~~\n- [ ] b\n## Phase 2: B\n- b\n", "1⬚ 2⬚"),
    ("## Phase 1: A [FAIT]\n- a\n## Phase 2: B\n- b\n", "1✅ 2⬚"),
    ("## Phase 1: A [À FAIRE]\n- a\n## Phase 2: B\n- b\n", "1⬚ 2⬚"),
    ("## Phase 1: A [VALMIS]\n- a\n## Phase 2: B\n- b\n", "1⬚ 2⬚ | 1! phase 1 ends with [VALMIS], which is no"),
    ("## Phase 1: A [VALMIS]\n- [ ] a\n## Phase 2: B\n- b\n", "1⬚ 2⬚"),
    ("## Phase 1: A [HIGH]\n- a\n## Phase 2: B\n- b\n", "1⬚ 2⬚"),
    ("## Phase 1: A [docs]\n- a\n## Phase 2: B\n- b\n", "1⬚ 2⬚"),
    ("## Phase 1: [PHASE_NAME]\n- a\n## Phase 2: B\n- b\n", "1⬚ 2⬚ | 1! the title of phase 1 is a placeholder"),
    ("## Phase 1: {{title}} [TODO]\n- a\n## Phase 2: B\n- b\n", "1⬚ 2⬚ | 1! the title of phase 1 is a placeholder"),
    ("## Phase 1: [Reader](reader.md)\n- a\n## Phase 2: B\n- b\n", "1⬚ 2⬚"),
    # Chapters and criteria that name a phase are none.
    ("## Phase 5 Overview\ntext\n## Task 5.1: A\na\n## Task 5.2: B\nb\n## Phase 5 Gates\nc\n", "5.1⬚ 5.2⬚"),
    ("## Phase 6.1.1: A\n- [ ] a\n## Phase 6.1.2: B\n- [ ] b\n## ✅ Phase 6.1 checklist\ntext\n", "6.1.1⬚ 6.1.2⬚"),
    ("## Phase 1 Setup\n- [ ] a\n## Phase 1.5: B\n- [ ] b\n", "1⬚ 1.5⬚"),
    ("## Step 1: A\na\n## Step 2: B\nb\n## Checklist\n- [ ] Step 1–2: fast\n", "1⬚ 2⬚"),
    ("## Fase 1: A\na\n## Fase 2: B\nb\n## Métricas de Éxito\n- [ ] rápido\n", "1⬚ 2⬚"),
    ("## 任务清单\n### 1. 架构\n#### A\n- a\n### 2. B\n#### C\n- b\n", "1⬚ 2⬚"),
    (f"# SECTION 1: A\n# SECTION 2: B\n{OPEN}# SECTION 3: C\n", "1⬚ 2⬚"),
    ("## Phase 1: A ✅\n## Phase 2: B\n- [ ] b\n## Order\n| Phase | State |\n|--|--|\n| 2 | ⬚ |\n| 2 | ⬚ |\n",
     "1✅ 2⬚"),
    ("### Task 1: A\na\n### Task 2: B\nb\n## Checklist\n### Phase 3 Completion\n- [ ] c\n", "1⬚ 2⬚"),
    ("## Step 1: A\na\n## Step 2: B\nb\n## Done criteria\n- [ ] Step 2 printed it\n- [ ] fast\n", "1⬚ 2⬚"),
    ("## Parts\n### 1. User\n**Status:** Done\n## Work\n### Phase 1: A\n- [ ] a\n### Phase 2: B\n- [ ] b\n", "1⬚ 2⬚"),
    # A chapter that describes the phases once more is left out with a word.
    ("## List\n### Phase 1: A\n- [x] a\n### Phase 2: B\n- [ ] b\n## Strategy\n### Phase 1: A\ntext\n- x\n",
     "1✅ 2⬚ | 7 sections 'Phase <number>' are no phases and"),
    ("## List\n### Phase 1: A\n- [x] a\n### Phase 2: B\n- [ ] b\n## Strategy\n### Phase 1: A\n- [ ] x\n",
     "refused: two phases are called '1'"),
    ("## List\n### Phase 1: A\n- [x] a\n### Phase 2: B\n- [ ] b\n## Strategy\n### Phase 1: A\ntext\n"
     "### Phase 3: C\ntext\n", "refused: two phases are called '1'"),
    ("## List\n### Phase 1: A\n- [x] a\n### Phase 2: B\n- [ ] b\n### Phase 1: A\ntext\n",
     "refused: two phases are called '1'"),
    # Fields on one line are read.
    (f"{OPEN}## Phase 3: C\n**Priority: High** | **Dependencies: Phase 1** | **Blocks: the release**\n- c\n",
     "1⬚ 2⬚ 3⬚ <1"),
    # The column of dependencies of a tracker is read.
    ("| Phase | Name | Depends On | Status |\n|---|---|---|---|\n| 0 | A | - | ⬚ |\n| 1 | B | 0 | ⬚ |\n"
     "| 2A | C | Phase 1 | ⬚ |\n| 3 | D | 0, 2A | ⬚ |\n## Phase 0: T\n## Phase 1: T\n## Phase 2A: T\n"
     "## Phase 3: T\n", "0⬚ 1⬚ <0 2A⬚ <1 3⬚ <0 <2A"),
    # A comment of a script is no heading of dependencies.
    (f"{OPEN}\n# Dependencies of the shell\n\nsee Phase 1\n", "1⬚ 2⬚"),
    # Boxes below a label with a value are no dependencies.
    ("## Phase 1: A\n- [ ] a\n## Phase 2: B\n**Dependencies:** Phase 1\n- [ ] b\n", "1⬚ 2⬚ <1"),
    # What may be no open work is refused.
    ("# T\n\nAll of this is implemented.\n\n## M1 — Now\n- a\n\n## M2 — Next\n- b\n- c\n", "refused: no phases found"),
    ("## M1 — Now\nAlready in the release:\n- a\n\n## M2 — Next\n- b\n- c\n", "refused: no phases found"),
    ("## M1 — Now\n- a\n\n## M2 — Next\n- b\n- c\n\n| Step | Result |\n|--|--|\n| x | Done |\n",
     "refused: no phases found"),
    ("## M1 — Now\n- a\n\n## M2 — Next\n- b ✅\n- c\n", "refused: no phases found"),
    ("## M1 — Now\n- a\n\n## M2 — Next\n- ~~b~~\n- c\n", "refused: no phases found"),
    ("## M1 — Now\n- a\n\n## M2 — Next\n- b\n- c\n## M3\n## Milestone plan\n- d\n", "refused: no phases found"),
    ("## M1 — Now\na\n\n## M2 — Next\n- b\n- c\n", "refused: no phases found"),
    ("## Risiko 1: A\n- a\n## Risiko 2: B\n- b\n", "refused: no phases found"),
    ("## Del 1: A\n- a\n## Del 2: B\n- b\n## Notes\n- c\n", "refused: no phases found"),
    ("## M1 — A\n- a\n## M2 — B\n- b\n## M2+ — C\n- c\n", "refused: no phases found"),
    ("## v1.1 — A\n- a\n## v1.0 — B\n- b\n", "refused: no phases found"),
    ("# Viewer Contract\n## 1. Parser\n- a\n## 2. Printer\n- b\n## 3. Linter\n- c\n", "refused: no phases found"),
    ("# Plan\n## 1. Purpose\n- a\n## 2. Printer\n- b\n## 3. Linter\n- c\n", "refused: no phases found"),
    ("## Implementation Order\n1. a\n2. b\n3. c\n## Detailed Steps\n1. x\n2. y\n3. z\n", "refused: no phases found"),
    ("## Implementation Steps\n1. a\n2. b\n3. c\n## v2.0: B\n- x\n## v3.0: C\n- y\n", "refused: no phases found"),
    ("## Next Steps\n1. a\n2. b\n3. c\n", "refused: no phases found"),
    ("## Implementation Order\n1. a\n- b\n3. c\n", "refused: no phases found"),
    ("## M1 — A ✅\n- a\n## M2 — B\n- b\n- c ✅\n", "refused: no phases found"),
    ("## M1 — A ✅\n- a\n## M2 — B\n- b\n## Log\n- M2 ✅\n", "refused: no phases found"),
    ("## Tasks\n### #3 Split\n#### 1. A\ntext\n#### 2. B\ntext\n", "refused: no phases found"),
    ("# Planets\n1. a\n2. b\n3. c\n", "refused: no phases found"),
    ("# Plan\n1. a\n2. b\n3. c\n- d\n", "refused: no phases found"),
    ("## A\n**Implementation Tasks:**\n1. a\n2. b\n3. c\n## B\n- d\n", "refused: no phases found"),
    ("**Milestone 1 — A**\n- a ✅\n\n**Milestone 2 — B**\n- b\n", "refused: no phases found"),
    ("**Milestone 1 — A**\n- a\n\n**Milestone 2 — B**\n- b\n## More\n- c\n", "refused: no phases found"),
    ("## Acceptance Criteria\n- [ ] a\n- [ ] b\n", "refused: no phases found"),
    # A finished plan with notes asks unless it says complete.
    ("## Tasks\n- [x] a\n## Tests\n- [x] b\n## Changes\n### 1. A\n- x\n### 2. B\n- y\n", "1✅ 2✅ | 6!"),
    ("---\nstatus: complete\n---\n## Tasks\n- [x] a\n## Tests\n- [x] b\n## Changes\n### 1. A\n- x\n### 2. B\n- y\n",
     "1✅ 2✅"),
    # An order with signs makes phases without statuses doubtful.
    ("## Phase 1 — A\na\n## Phase 2 — B\nb\n## Implementation Order\n1. ✅ Login\n2. Docs\n", "1⬚ 2⬚ | 1!"),
    ("## Phase 1 — A\na\n## Phase 2 — B\nb\n## Success Criteria\n- ✅ Fast\n", "1⬚ 2⬚"),
    # The boxes of a board are its phases, also under several headings, and those of a checklist if there are no others.
    ("## ✅ Completed\n- [x] Sow\n- [x] Weed\n## In Progress\n## To do\n- [ ] Reap\n", "1 Sow ✅ 2 Weed ✅ 3 Reap ⬚"),
    ("## Early\n\n- [x] Phase 1 — a\n\n## Late\n\n- [ ] Phase 2 — b\n", "1 a ✅ 2 b ⬚"),
    ("# Plan\n## Goal\nText.\n## Checklist\n- [x] Sow\n- [x] Reap\n", "1✅ 2✅"),
    # The status lines of sub-sections are theirs.
    ("## Phase 1 - A\n### 1.1 Lexer\n**Status:** Done\n- [x] a\n### 1.2 Parser\n**Status:** Open\n- [ ] b\n"
     "## Phase 2 - B\n- [ ] b\n", "1⬚ 2⬚"),
    # A box with a sign of its own is todo and remarked.
    ("# Plan: X\n\n- [X] a\n- [-] b\n- [ ] c\n", "a✅ b⬚ c⬚ | 4 the status of phase b is unknown; it counts"),
    # A heading in a fence is no phase.
    ("## Phase 1 — A\n- [ ] a\n~~~\n## Phase 8 — x\n~~~\n## Phase 2 — B\n- [ ] b\n", "1⬚ 2⬚"),
    ("## Phase 1 — A\n- [ ] a\n~~~\n```\n## Phase 8 — x\n~~~\n## Phase 2 — B\n- [ ] b\n", "1⬚ 2⬚"),
    ("## Phase 1 — A\n- [ ] a\n```markdown\n```sh\nls\n```\n## Phase 8 — x\n```\n## Phase 2 — B\n- [ ] b\n", "1⬚ 2⬚"),
    ("## Phase 1 — A\n- [ ] a\n````\n```\n## Phase 8 — x\n```\n## Phase 9 — x\n````\n## Phase 2 — B\n- [ ] b\n",
     "1⬚ 2⬚"),
    # A lone phase section may be a chapter of another plan.
    ("## Early\n- [x] 1. a\n  - [x] 1.1 b\n## Phase 2: Late\n- [ ] 2. c\n", "1✅ 2⬚"),
    ("### Phase A — Core\n#### M1: a\n- [x] b\n#### M2: c\n- [ ] d\n", "M1✅ M2⬚"),
    ("## Steps\n### Story 1: a\n### User Story 2: b\n", "1⬚ 2⬚"),
    # An indented status line is of its entry.
    ("## Phase 1 - A\n- [x] a\n  - **Status**: see below\n## Phase 2 - B\n- [ ] b\n", "1✅ 2⬚"),
    # A plain status counts only above the first sub heading.
    ("## Phase 1 — A\n**Status:** ⬚\n## Phase 2 — B\n\n### Report\n\nStatus: done\n", "1⬚ 2⬚"),
]  # fmt: skip


def outline(plan: Plan, like: str = "") -> str:
    """The phases in the notation above, with titles and counts as there."""
    rows = []
    for phase in plan.phases:
        count = sum(item.id.startswith("W") for item in phase.items)
        title = f" {phase.title} " if f"{phase.id} {phase.title} " in like else ""
        waits = "".join(f" <{id_}" for id_ in phase.depends)
        rows.append(
            f"{phase.id}{title}{SIGNS[phase.status]}{waits}{f' W{count}' if ' W' in like and count > 1 else ''}"
        )
    return " ".join(rows)


@pytest.mark.parametrize(("text", "expected"), READINGS)
def test_a_plan_is_read_as_its_author_meant_it_or_asks(text: str, expected: str) -> None:
    phases, *remarks = expected.split(" | ")
    if phases.startswith("refused: "):
        with pytest.raises(PlanUnreadable, match=phases.removeprefix("refused: ")):
            parse_plan(text.encode(), path="plans/p.md")
        return
    plan = parse_plan(text.encode(), path="plans/p.md")
    found = [(f"{remark.line}{'!' * remark.is_error}", remark.text) for remark in plan.remarks]
    assert outline(plan, phases) == phases
    assert [line for line, _ in found if "!" in line] == [line for line in map(first_word, remarks) if "!" in line]
    for remark in remarks:
        line, _, words = remark.partition(" ")
        assert any(line == place and words in text for place, text in found), plan.remarks


@pytest.mark.parametrize("text", [text for text, expected in READINGS if "! " in expected])
def test_a_line_of_the_front_matter_settles_which_sections_are_the_phases(text: str) -> None:
    plan = parse_plan(text.encode(), path="plans/p.md")
    said = plan.refusals(strict=False)[0].text
    choice = re.search(r"write (format: [^`]+?) into", said)
    if choice is None:
        return
    assert said.endswith("runplan plan --file plans/p.md")
    settled = parse_plan(f"---\n{choice[1]}\n---\n{text}".encode(), path="plans/p.md")
    assert (outline(settled), settled.refusals(strict=False)) == (outline(plan), ())


def first_word(text: str) -> str:
    return text.partition(" ")[0]
