"""Records extracted from a text."""

from schemas.forms import FormRequest, Schema, choice, day, flag, record, some, text, whole


def _extract(what: str, source: str, schema: Schema) -> FormRequest:
    return FormRequest("extraction", f"Extract {what} as JSON from this text.\n\n{source}", schema)


EXTRACTIONS = (
    _extract(
        "the invoice",
        "Invoice 2026-118 of 12 November 2026 from Nordlicht GmbH: 1,240 euros, due within 30 days.",
        record(invoice_number=text(16), invoice_date=day(), supplier_name=text(32), total_amount_eur=whole(0, 1000000)),
    ),
    _extract(
        "the person",
        "Dr. Elena Petrova, 43, is head of cardiology at the hospital of Graz. She speaks Russian and German.",
        record(full_name=text(32), age_in_years=whole(0, 120), occupation=text(32), workplace=text(40)),
    ),
    _extract(
        "the flat",
        "Bright three-room flat in Leipzig, 78 square metres, second floor, balcony, 890 euros a month, no pets.",
        record(
            city=text(20),
            num_rooms=whole(1, 20),
            living_area_square_metres=whole(5, 1000),
            monthly_rent_eur=whole(50, 20000),
            has_balcony=flag(),
            pets_allowed=flag(),
        ),
    ),
    _extract(
        "the job advertisement",
        "Riverbank Ltd in Dublin seeks a senior backend engineer (Go, PostgreSQL), hybrid, 85,000 euros a year.",
        record(
            company_name=text(24),
            job_title=text(40),
            work_location=text(24),
            remote_policy=choice("on_site", "hybrid", "fully_remote"),
            required_skills=some(text(16), 4),
            yearly_salary_eur=whole(10000, 500000),
        ),
    ),
    _extract(
        "the accident",
        "On 3 March 2026 a lorry skidded on the icy A9 near Hof and blocked both lanes for hours. Nobody was hurt.",
        record(
            accident_date=day(),
            road_name=text(12),
            nearest_town=text(20),
            cause_of_accident=text(40),
            num_injured_people=whole(0, 100),
            road_was_closed=flag(),
        ),
    ),
    _extract(
        "the recipe's facts",
        "Grandmother's potato soup serves four and takes 40 minutes: potatoes, leek, carrots, cream. Vegetarian.",
        record(
            recipe_title=text(32),
            num_servings=whole(1, 50),
            preparation_minutes=whole(1, 600),
            main_ingredients=some(text(16), 5),
            is_vegetarian=flag(),
        ),
    ),
    _extract(
        "the laboratory result",
        "Patient 8812: haemoglobin 13.8 g/dl, within the reference range, sample taken in the morning of 2026-10-02.",
        record(
            patient_identifier=text(12),
            measured_quantity=text(24),
            measurement_unit=text(8),
            sample_date=day(),
            is_within_reference_range=flag(),
        ),
    ),
    _extract(
        "the book",
        "The Glass Orchard, a novel by Mira Lund, appeared in 2019 with Harbour Press and has 412 pages.",
        record(
            book_title=text(32),
            author_name=text(24),
            publication_year=whole(1500, 2030),
            publisher_name=text(24),
            number_of_pages=whole(1, 5000),
        ),
    ),
    _extract(
        "the shipment",
        "Parcel JX-55-201, 4 kg, left Rotterdam on Tuesday and was last scanned in Lyon. Delivery on 2026-12-01.",
        record(
            tracking_number=text(16),
            weight_in_kilograms=whole(0, 1000),
            departure_city=text(20),
            last_seen_city=text(20),
            expected_delivery_date=day(),
            delivery_status=choice("in_transit", "delivered", "delayed", "lost"),
        ),
    ),
    _extract(
        "the review",
        "Two stars. The tent looks nice, but after one night of rain everything was wet. The shop answered quickly.",
        record(
            star_rating=whole(1, 5),
            product_name=text(20),
            overall_sentiment=choice("positive", "neutral", "negative"),
            main_complaint=text(40),
            would_recommend=flag(),
        ),
    ),
    _extract(
        "the match",
        "Before 31,000 spectators Rovers beat United 3:1 on Saturday. Okafor scored twice.",
        record(
            home_team=text(16),
            away_team=text(16),
            home_team_goals=whole(0, 30),
            away_team_goals=whole(0, 30),
            number_of_spectators=whole(0, 200000),
            best_scorer=text(20),
        ),
    ),
    _extract(
        "the server alert",
        "14:02 db-replica-3: disk usage 94 percent, replication lag 12 s, on-call engineer paged.",
        record(
            host_name=text(20),
            alert_severity=choice("information", "warning", "critical"),
            disk_usage_percent=whole(0, 100),
            replication_lag_seconds=whole(0, 100000),
            engineer_was_paged=flag(),
        ),
    ),
    _extract(
        "the contract",
        "The lease between Mr Brandt and Solis AG begins on 2027-01-01, lasts 24 months and needs 3 months of notice.",
        record(
            landlord_name=text(20),
            tenant_name=text(20),
            contract_start_date=day(),
            duration_in_months=whole(1, 600),
            notice_period_months=whole(0, 24),
        ),
    ),
    _extract(
        "the star",
        "Vega in the constellation Lyra is 25 light-years away, of spectral class A and the fifth-brightest star.",
        record(
            star_name=text(16),
            constellation_name=text(16),
            distance_in_light_years=whole(1, 100000),
            spectral_class=choice("O", "B", "A", "F", "G", "K", "M"),
            rank_by_brightness=whole(1, 10000),
        ),
    ),
    _extract(
        "the voice message",
        "Hi, this is Paul from the garage, your car is ready, that makes 310 euros, we are open until six.",
        record(
            caller_name=text(16),
            caller_company=text(20),
            reason_for_call=text(40),
            amount_due_eur=whole(0, 100000),
            needs_answer=flag(),
        ),
    ),
)
