"""Right answers, and how sure their share is."""

import pytest

from pilotfish.bench.grading import accuracy_of, is_right


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("5 x 12 = 60, and 60 - 17 = 43.", "43", True),
        ("43 of 60", "43", False),
        ("She pays $1,028.50 in all.", "She buys 3 and pays 4 each.\n#### 1028.5", True),
        ("The speed is 60.0 km/h", "60 km/h", True),
        ("It is minus three: x = -3", "-3", True),
        ("The result is 7-3", "3", True),
        ("No number", "3", False),
        ("The capital is **Canberra**, not Sydney.", "Canberra", True),
        ("canberra", "Canberra.", True),
        ("Canberras", "Canberra", False),
        ("Lovely in  winter,\nwe said", "in winter we", True),
        ("Years: 1820, 1871", "1820, 1871", True),
        ("H2O", "H2O", True),
        ("It came out in September 2014, in 35 countries.", "September 2014", True),
        ("In July 2014", "September 2014", False),
        ("CaCO3 + 2 HCl", "CaCO3 + 2 HCl = CaCl2 + CO2 + H2O", False),
        ("With base 2 and height 3 it has 3", "Area is 3", True),
        ("x = 4", "x = 3", False),
        ("anything", "", None),
        ("anything", " #### ", None),
        ("anything", "This is what a good answer would have to say in it", None),
    ],
)
def test_answers_are_right_by_their_last_number_or_by_the_words(
    answer: str, reference: str, right: bool | None
) -> None:
    assert is_right(answer, [reference]) is right


def test_errors_are_those_of_means_over_questions_and_the_differences_are_paired() -> None:
    accuracy = accuracy_of([1.0, 0.5, 0.0, 0.5], [1.0, 1.0, 0.0, 1.0])
    assert accuracy is not None
    assert (accuracy.num_questions, accuracy.right, accuracy.difference) == (4, 0.5, -0.25)
    assert accuracy.error == pytest.approx((0.5 / 3) ** 0.5 / 2)
    assert accuracy.difference_error == pytest.approx((2.3333 / 5) ** 0.5 / 6**0.5, rel=1e-3)
    assert not accuracy.is_lower


@pytest.mark.parametrize(
    ("num_lost", "num_questions", "is_lower"),
    [(1, 1, False), (2, 2, False), (3, 3, True), (3, 40, False), (9, 40, True)],
)
def test_few_questions_prove_nothing(num_lost: int, num_questions: int, is_lower: bool) -> None:
    ours = [0.0] * num_lost + [1.0] * (num_questions - num_lost)
    accuracy = accuracy_of(ours, [1.0] * num_questions)
    assert accuracy is not None
    assert accuracy.is_lower is is_lower


def test_one_question_has_no_error_and_none_no_share() -> None:
    accuracy = accuracy_of([0.0], [1.0])
    assert accuracy is not None
    assert accuracy.error is None
    assert accuracy_of([], []) is None


def test_any_of_several_references_will_do() -> None:
    assert is_right("In December 1972.", ["14 December 1972", "December 1972"])
    assert is_right("In 1969.", ["14 December 1972", "December 1972"]) is False
    assert is_right("In 1969.", []) is None
