"""Lists of records, and records within records."""

from schemas.forms import FormRequest, Schema, choice, flag, record, some, text, whole


def _nested(question: str, **properties: Schema) -> FormRequest:
    return FormRequest("nested lists", question, record(**properties))


_ADDRESS = record(street_name=text(24), house_number=whole(1, 999), postal_code=text(8), city_name=text(20))
_MONEY = record(amount_in_cents=whole(0, 10000000), currency_code=choice("EUR", "USD", "GBP"))

NESTED = (
    _nested(
        "Plan three days in Rome as JSON.",
        travel_days=some(
            record(
                day_number=whole(1, 14), morning_activity=text(32), evening_activity=text(32), needs_reservation=flag()
            ),
            3,
            3,
        ),
    ),
    _nested(
        "An order of two pencils and a notebook by Ms Jung, 12 Hill Street, Bonn, as JSON.",
        customer=record(first_name=text(16), last_name=text(16), delivery_address=_ADDRESS),
        order_items=some(record(article_name=text(20), quantity=whole(1, 99), unit_price=_MONEY), 2, 2),
    ),
    _nested(
        "A shopping list for pancakes for four, as JSON.",
        shopping_list=some(
            record(
                ingredient_name=text(20),
                quantity=whole(1, 2000),
                measurement_unit=choice("gram", "millilitre", "piece", "teaspoon"),
                is_optional=flag(),
            ),
            4,
            3,
        ),
    ),
    _nested(
        "A quiz about planets with two questions of three answers each, as JSON.",
        quiz_questions=some(
            record(
                question_text=text(60),
                answer_options=some(text(16), 3, 3),
                index_of_correct_answer=whole(0, 2),
                difficulty_level=choice("easy", "medium", "hard"),
            ),
            2,
            2,
        ),
    ),
    _nested(
        "The steps to change a bicycle tyre, as JSON.",
        repair_steps=some(
            record(
                step_number=whole(1, 20),
                instruction_text=text(60),
                required_tool=choice("tyre_lever", "wrench", "air_pump", "none"),
                estimated_minutes=whole(1, 60),
            ),
            4,
            3,
        ),
    ),
    _nested(
        "A class diagram of a library system as JSON: two classes with their attributes.",
        class_definitions=some(
            record(
                class_name=text(16),
                attributes=some(
                    record(attribute_name=text(16), attribute_type=choice("string", "integer", "boolean", "date")), 3, 2
                ),
            ),
            2,
            2,
        ),
    ),
    _nested(
        "Opening hours of a museum that is closed on Mondays, as JSON for three days.",
        opening_hours=some(
            record(
                day_of_week=choice("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
                is_open=flag(),
                opening_hour=whole(0, 23),
                closing_hour=whole(0, 23),
            ),
            3,
            3,
        ),
    ),
    _nested(
        "A training plan for a beginner who wants to run 5 km, two weeks, as JSON.",
        training_weeks=some(
            record(
                week_number=whole(1, 12),
                training_sessions=some(
                    record(
                        session_type=choice("easy_run", "interval_training", "long_run", "rest_day"),
                        duration_minutes=whole(0, 180),
                    ),
                    2,
                    2,
                ),
            ),
            2,
            2,
        ),
    ),
    _nested(
        "A menu with a starter and a main course, allergens included, as JSON.",
        menu_courses=some(
            record(
                course_type=choice("starter", "main_course", "dessert"),
                dish_name=text(28),
                price=_MONEY,
                contained_allergens=some(choice("gluten", "milk", "eggs", "nuts", "fish"), 2),
            ),
            2,
            2,
        ),
    ),
    _nested(
        "A network of two servers and their interfaces, as JSON.",
        servers=some(
            record(
                host_name=text(16),
                operating_system=choice("debian_linux", "windows_server", "freebsd"),
                network_interfaces=some(record(interface_name=text(8), ip_address=text(16), is_enabled=flag()), 2),
            ),
            2,
            2,
        ),
    ),
    _nested(
        "Two tasks of a project to move an office, with subtasks, as JSON.",
        project_tasks=some(
            record(
                task_title=text(32),
                task_status=choice("not_started", "in_progress", "completed"),
                assigned_person=text(16),
                subtasks=some(record(subtask_title=text(28), is_completed=flag()), 2),
            ),
            2,
            2,
        ),
    ),
    _nested(
        "A family of two adults and a child, as JSON.",
        family_members=some(
            record(
                given_name=text(16),
                age_in_years=whole(0, 110),
                family_role=choice("mother", "father", "daughter", "son"),
                favourite_activities=some(text(16), 2),
            ),
            3,
            3,
        ),
    ),
    _nested(
        "A bill of a restaurant for two coffees and a cake, as JSON.",
        restaurant_name=text(24),
        bill_items=some(record(item_name=text(20), quantity=whole(1, 20), item_price=_MONEY), 2, 2),
        total_price=_MONEY,
        payment_method=choice("cash", "credit_card", "mobile_payment"),
    ),
    _nested(
        "Three symptoms of a cold and what helps, as JSON.",
        symptoms=some(
            record(
                symptom_name=text(20),
                typical_duration_days=whole(1, 30),
                recommended_remedies=some(text(20), 2),
                see_doctor_if_persistent=flag(),
            ),
            3,
            3,
        ),
    ),
    _nested(
        "A playlist of two songs with their artists, as JSON.",
        playlist_name=text(24),
        playlist_songs=some(
            record(
                song_title=text(28),
                artist=record(artist_name=text(20), country_of_origin=text(16)),
                duration_seconds=whole(30, 1200),
                music_genre=choice("rock", "pop", "jazz", "classical", "electronic"),
            ),
            2,
            2,
        ),
    ),
)
