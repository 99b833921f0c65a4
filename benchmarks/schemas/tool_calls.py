"""Function calls of an agent."""

from schemas.forms import FormRequest, Schema, choice, day, flag, record, some, text, whole


def _call(function: str, about: str, question: str, arguments: Schema) -> FormRequest:
    return FormRequest("tool calls", question, arguments, function, about)


TOOL_CALLS = (
    _call(
        "get_weather_forecast",
        "The weather forecast of a city.",
        "What is the weather in Lisbon for the next three days, in celsius?",
        record(city=text(24), temperature_unit=choice("celsius", "fahrenheit"), num_days=whole(1, 14)),
    ),
    _call(
        "create_calendar_event",
        "Add an event to the calendar.",
        "Put a dentist appointment on my calendar for 2026-12-03 at 9 in the morning, for 45 minutes.",
        record(title=text(32), date=day(), start_hour=whole(0, 23), duration_minutes=whole(5, 480), is_private=flag()),
    ),
    _call(
        "search_products",
        "Search the shop's catalogue.",
        "I am looking for red running shoes for women below 90 euros, cheapest first.",
        record(
            query=text(40),
            category=choice("shoes", "clothing", "electronics", "home"),
            max_price_eur=whole(1, 5000),
            sort_by=choice("relevance", "price_ascending", "price_descending", "rating"),
        ),
    ),
    _call(
        "send_email",
        "Send an email on behalf of the user.",
        "Write to maria@example.com that the meeting on Friday is moved to 3 pm.",
        record(recipient_address=text(32), subject=text(40), body=text(120), priority=choice("low", "normal", "high")),
    ),
    _call(
        "convert_currency",
        "Convert an amount of money.",
        "How much are 250 US dollars in euros?",
        record(
            amount=whole(1, 1000000),
            source_currency=choice("USD", "EUR", "GBP", "JPY", "CHF"),
            target_currency=choice("USD", "EUR", "GBP", "JPY", "CHF"),
        ),
    ),
    _call(
        "book_train_ticket",
        "Book a train ticket.",
        "I need two second-class tickets from Berlin to Hamburg on 2026-12-10, with a window seat.",
        record(
            departure_station=text(24),
            arrival_station=text(24),
            travel_date=day(),
            num_passengers=whole(1, 9),
            travel_class=choice("first_class", "second_class"),
            seat_preference=choice("window", "aisle", "no_preference"),
        ),
    ),
    _call(
        "run_database_query",
        "Read rows of a table.",
        "Show me the 20 newest orders of customer 4711.",
        record(
            table_name=choice("customers", "orders", "invoices", "products"),
            filter_column=choice("customer_id", "order_date", "status"),
            filter_value=text(20),
            order_by=choice("created_at", "updated_at"),
            descending=flag(),
            row_limit=whole(1, 1000),
        ),
    ),
    _call(
        "set_thermostat",
        "Set the heating of a room.",
        "Make the living room 21 degrees until ten in the evening.",
        record(
            room_name=choice("living_room", "bedroom", "kitchen", "bathroom"),
            target_temperature_celsius=whole(5, 30),
            heating_mode=choice("comfort", "economy", "frost_protection"),
            until_hour=whole(0, 23),
        ),
    ),
    _call(
        "create_support_ticket",
        "Open a ticket of the customer support.",
        "My internet connection has been failing every evening since Monday. Please help.",
        record(
            issue_category=choice("billing", "technical_problem", "cancellation", "other"),
            severity_level=choice("low", "medium", "high", "critical"),
            short_description=text(80),
            customer_wants_callback=flag(),
        ),
    ),
    _call(
        "transfer_money",
        "Transfer money between accounts.",
        "Send 75 euros to Tom for the concert tickets.",
        record(
            recipient_name=text(24), amount_in_cents=whole(1, 1000000), currency=choice("EUR", "USD"), purpose=text(48)
        ),
    ),
    _call(
        "read_file_lines",
        "Read lines of a file in the repository.",
        "Show me lines 40 to 80 of src/server/main.py.",
        record(
            file_path=text(48), first_line=whole(1, 100000), last_line=whole(1, 100000), include_line_numbers=flag()
        ),
    ),
    _call(
        "search_flights",
        "Search flights.",
        "Find flights from London to New York on 2026-12-20 for two adults, without stops.",
        record(
            origin_airport=text(20),
            destination_airport=text(20),
            departure_date=day(),
            num_adults=whole(1, 9),
            cabin_class=choice("economy", "premium_economy", "business", "first"),
            direct_flights_only=flag(),
        ),
    ),
    _call(
        "play_music",
        "Play music on a speaker.",
        "Play some calm jazz in the kitchen, not too loud.",
        record(
            search_terms=some(text(16), 3),
            speaker_name=choice("kitchen", "living_room", "bedroom"),
            volume_percent=whole(0, 100),
            shuffle=flag(),
        ),
    ),
    _call(
        "create_pull_request",
        "Open a pull request.",
        "Open a pull request from fix-login into main that fixes the login timeout. Ask Anna for a review.",
        record(
            title=text(60),
            source_branch=text(24),
            target_branch=text(24),
            reviewers=some(text(16), 3),
            is_draft=flag(),
            merge_strategy=choice("merge_commit", "squash", "rebase"),
        ),
    ),
    _call(
        "update_inventory_item",
        "Change the stock of an article.",
        "We received 120 more of article A-2231 in warehouse north.",
        record(
            article_number=text(12),
            warehouse_location=choice("north", "south", "central"),
            quantity_change=whole(-10000, 10000),
            reason_for_change=choice("delivery_received", "customer_return", "damaged_goods", "stock_correction"),
        ),
    ),
)
