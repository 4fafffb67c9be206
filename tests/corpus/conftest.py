"""Prints, after the corpus was played, how many cases of each family and language ended right."""

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--corpus"):
        return
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    outcomes = [value for report in reports for key, value in report.user_properties if key == "outcome"]
    if not outcomes:
        return
    languages = sorted({language for language, *_ in outcomes})
    played = Counter((family, language) for language, family, *_ in outcomes)
    right = Counter((family, language) for language, family, _, wrong, _ in outcomes if not wrong)
    rows = [("", *languages, "right", "of")]
    for family in sorted({family for family, _ in played}):
        cells = [f"{right[family, name]}/{played[family, name]}".replace("0/0", "") for name in languages]
        sums = [sum(counts[family, name] for name in languages) for counts in (right, played)]
        rows.append((family, *cells, *map(str, sums)))
    rows.append(("", *[""] * len(languages), str(right.total()), str(played.total())))
    terminalreporter.section("corpus: right of played")
    for row in rows:
        terminalreporter.line(f"{row[0]:<20}" + "".join(f"{cell:>10}" for cell in row[1:]))
    for kind, count in Counter(wrong for *_, wrong, _ in outcomes if wrong).most_common():
        terminalreporter.line(f"{kind}: {count}")
    for language, family, name, wrong, reason in sorted(outcomes):
        if wrong:
            terminalreporter.line(f"  {wrong}{f' ({reason})' if reason else ''}: {language}, {family}: {name}")
