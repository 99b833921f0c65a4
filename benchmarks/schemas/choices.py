"""Judgements by lists of values."""

from schemas.forms import FormRequest, Schema, choice, flag, record, some, text, whole


def _judge(question: str, **properties: Schema) -> FormRequest:
    return FormRequest("choices", question, record(**properties))


_TONES = choice("friendly", "neutral", "annoyed", "aggressive")
_TEAMS = choice("billing_department", "technical_support", "sales_department", "legal_department")
_DEGREES = choice("not_at_all", "partially", "completely")

CHOICES = (
    _judge(
        "Route this message: 'I was charged twice for my subscription this month.'",
        responsible_team=_TEAMS,
        urgency_level=choice("can_wait", "this_week", "today", "immediately"),
        customer_tone=_TONES,
    ),
    _judge(
        "Moderate this comment: 'You people have no idea what you are talking about.'",
        contains_insult=flag(),
        contains_threat=flag(),
        moderation_decision=choice("publish", "publish_with_warning", "send_to_review", "remove"),
        explanation_code=choice("harmless", "impolite_language", "personal_attack", "hate_speech"),
    ),
    _judge(
        "Classify the news headline: 'Central bank leaves interest rates unchanged.'",
        main_topic=choice("politics", "economy", "science", "sports", "culture"),
        geographic_scope=choice("local", "national", "international"),
        expected_sentiment=choice("positive", "neutral", "negative"),
    ),
    _judge(
        "Grade the answer 'Photosynthesis turns light into sugar' to the question what photosynthesis is.",
        is_factually_correct=_DEGREES,
        is_complete=_DEGREES,
        language_quality=choice("poor", "acceptable", "good", "excellent"),
        points_awarded=whole(0, 10),
    ),
    _judge(
        "Triage: a 60 year old with chest pain for one hour, sweating, pale.",
        triage_category=choice("immediate", "very_urgent", "urgent", "standard", "non_urgent"),
        suspected_system=choice("cardiovascular", "respiratory", "neurological", "gastrointestinal"),
        ambulance_required=flag(),
        recommended_place=choice("emergency_department", "general_practitioner", "home_care"),
    ),
    _judge(
        "Which licence is this? 'Permission is hereby granted, free of charge, to any person obtaining a copy ...'",
        licence_name=choice("MIT_License", "Apache_License_2.0", "BSD_3_Clause", "GNU_General_Public_License"),
        allows_commercial_use=flag(),
        requires_attribution=flag(),
        copyleft_strength=choice("none", "weak", "strong"),
    ),
    _judge(
        "Review the change: it renames a variable in a test and fixes a typing error in a comment.",
        change_type=choice("bug_fix", "new_feature", "refactoring", "documentation", "test_only"),
        risk_level=choice("very_low", "low", "medium", "high"),
        needs_security_review=flag(),
        recommendation=choice("approve", "request_changes", "comment_only"),
    ),
    _judge(
        "What does the user want? 'Can you move my table for two from seven to half past eight?'",
        user_intent=choice("new_reservation", "change_reservation", "cancel_reservation", "general_question"),
        meal=choice("breakfast", "lunch", "dinner"),
        party_size=whole(1, 20),
    ),
    _judge(
        "Assess the credit application of a nurse with 2,900 euros a month who asks for 8,000 euros.",
        credit_decision=choice("approved", "approved_with_conditions", "manual_review", "rejected"),
        risk_class=choice("very_low_risk", "low_risk", "medium_risk", "high_risk"),
        income_is_sufficient=flag(),
        collateral_required=flag(),
    ),
    _judge(
        "Describe the photo of a golden retriever that jumps into a lake at sunset.",
        main_subject=choice("person", "animal", "landscape", "building", "vehicle"),
        time_of_day=choice("morning", "noon", "evening", "night"),
        dominant_mood=choice("joyful", "calm", "sad", "threatening"),
        image_tags=some(choice("dog", "water", "sunset", "forest", "city", "snow"), 3),
    ),
    _judge(
        "Which language is this and how formal? 'Sehr geehrte Damen und Herren, hiermit kündige ich meinen Vertrag.'",
        detected_language=choice("english", "german", "french", "spanish", "italian"),
        formality_level=choice("informal", "neutral", "formal"),
        document_type=choice("complaint_letter", "termination_letter", "application_letter", "invitation"),
    ),
    _judge(
        "Plan the next step of the robot: the box is in front of it, the gripper is empty.",
        next_action=choice("move_forward", "turn_left", "turn_right", "grasp_object", "release_object"),
        movement_speed=choice("slow", "normal", "fast"),
        requires_confirmation=flag(),
        confidence_percent=whole(0, 100),
    ),
    _judge(
        "Is this mail spam? 'Congratulations! You have won a cruise. Click here within 24 hours.'",
        spam_probability=choice("very_unlikely", "unlikely", "likely", "very_likely"),
        suspicious_features=some(choice("urgency", "unknown_sender", "prize_promise", "strange_link"), 4),
        recommended_folder=choice("inbox", "promotions", "spam_folder", "quarantine"),
    ),
    _judge(
        "Judge the plant: yellow leaves, wet soil, dark corner.",
        probable_cause=choice("overwatering", "underwatering", "lack_of_light", "pest_infestation"),
        recommended_action=choice("water_less", "water_more", "move_to_light", "use_pesticide"),
        chance_of_recovery=choice("low", "moderate", "high"),
        short_advice=text(40),
    ),
    _judge(
        "Compare the two answers. A: 'Paris.' B: 'The capital of France is Paris, on the Seine.'",
        better_answer=choice("answer_a", "answer_b", "both_are_equal"),
        margin_of_preference=choice("slight", "clear", "overwhelming"),
        deciding_criterion=choice("correctness", "completeness", "conciseness", "style"),
    ),
)
