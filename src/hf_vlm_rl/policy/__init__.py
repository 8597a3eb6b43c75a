"""Tickets and ids become logits: the policy, and what it computes once instead of often."""
