"""A condition is asked at least once, and no longer than it may take."""

from runplan.clock import until


def test_the_answer_is_given_as_soon_as_there_is_one() -> None:
    answers = iter([None, "", "there", "never asked"])
    assert until(lambda: next(answers), within_s=60, every_s=0) == "there"
    assert next(answers) == "never asked"


def test_when_the_time_is_up_the_last_answer_is_given() -> None:
    asked: list[int] = []
    assert until(lambda: asked.append(1), within_s=0) is None
    assert asked == [1]
