"""Who looks, and what they see."""
