from pilotfish.drafters.grammar.habits import SplitHabits

PLACE, ELSEWHERE = (3, 1234, 7), (3, 99, 7)


def test_at_first_the_tokenizer_is_believed() -> None:
    token_id, confidence = SplitHabits().likeliest(PLACE)
    assert token_id == 7
    assert confidence > 0.95


def test_what_the_model_writes_at_a_place_is_expected_there_and_doubted_elsewhere() -> None:
    habits = SplitHabits()
    for _ in range(30):
        habits.note(PLACE, 5)
    assert habits.likeliest(PLACE)[0] == 5
    assert habits.likeliest(PLACE)[1] > 0.9
    for _ in range(30):
        habits.note(ELSEWHERE, 7)
    assert habits.likeliest(PLACE)[0] == 5
    assert habits.likeliest(ELSEWHERE)[0] == 7


def test_requests_of_another_salt_show_in_nothing() -> None:
    habits = SplitHabits()
    untouched = habits.likeliest((4, 1234, 7))
    for _ in range(30):
        habits.note(PLACE, 5)
    assert habits.likeliest((4, 1234, 7)) == habits.likeliest((4, 99, 7)) == untouched


def test_a_habit_that_ends_is_forgotten() -> None:
    habits = SplitHabits()
    for token_id in [5] * 50 + [7] * 30:
        habits.note(PLACE, token_id)
    assert habits.likeliest(PLACE)[0] == 7


def test_of_many_places_the_latest_are_kept() -> None:
    habits = SplitHabits()
    for _ in range(10):
        habits.note(PLACE, 5)
    for place in range(40_000):
        habits.note((3, place, 1_000_000 + place), 3)
    assert habits.likeliest(PLACE)[0] == 7
    assert habits.likeliest((3, 39_999, 1_039_999))[0] in (3, 1_039_999)
