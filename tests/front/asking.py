"""What trainers ask of a front, and what the policy says of the answer."""

from hf_vlm_rl.policy.scored import logprobs_of


def encode(policy, text, *images):
    """Ids with tickets of one user's message, as trainers send them."""
    blocks = [{"type": "image", "image": image} for image in images]
    content = [*blocks, {"type": "text", "text": text}]
    row = policy.tokenizer.with_tickets({"prompt": [{"role": "user", "content": content}]})
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
    return policy.tokenizer.apply_chat_template(row["prompt"], **options)


def own(policy, ids, completion, temperature=1.0):
    """The policy's log-probs of a completion of ids with tickets."""
    clean, places = policy.tokenizer.places(ids)
    carried = [(ticket, None) for ticket, _, _ in places]
    return logprobs_of(policy, clean, carried, completion, temperature)
