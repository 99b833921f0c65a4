"""What drafters learn from: prompts, conversations, and what the target computed of them."""
