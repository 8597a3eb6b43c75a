"""Update and rollout of one GRPO group: stock model against policy, same weights and data.

`python -m benchmarks.sharing` prints, per shape, the time ratio stock / policy of the update (forward
and backward of the completion's log-probs, LoRA on the decoder) and of the rollout, next to the token
ratio, which bounds the update, and the largest difference in log-probs and in gradients. Both models
take turns in one process; the figures are medians.
"""

import argparse
import copy
import itertools
import platform
import statistics
import time

import torch
from peft import get_peft_model
from transformers import AutoModelForImageTextToText

from hf_vlm_rl import AutoVLMPolicy
from tests.images import photo
from tests.tiny import recipe

TOKENS_A_TILE = 16


def models(tiles: int, layers: int, width: int):
    """A stock InternVL of random weights and a policy of the same, each with the same adapter."""
    made = recipe("internvl")
    text = made.config.text_config
    text.hidden_size, text.intermediate_size, text.num_hidden_layers = width, 3 * width, layers
    text.num_attention_heads, text.num_key_value_heads = width // 64, width // 128
    text.layer_types = ["full_attention"] * layers
    made.processor.image_processor.max_patches = max(tiles - 1, 1)
    torch.manual_seed(0)
    stock = AutoModelForImageTextToText.from_config(made.config, dtype=torch.float32)
    policy = AutoVLMPolicy.from_model(copy.deepcopy(stock), made.processor)
    config = policy.lora_config(r=16, init_lora_weights=False)
    adapted = []
    for model in (stock, policy):
        torch.manual_seed(0)
        adapted.append(get_peft_model(model, config))
    return *adapted, policy


def batches(policy, group: int, completion: int, tiles: int):
    """The same group of rows with pixels and with tickets, as (B, T) tensors."""
    processing_class = policy.processing_class
    size = {1: (112, 112), 7: (336, 224), 13: (448, 336)}[tiles]
    content = [{"type": "image", "image": photo("astronaut", size)}, {"type": "text", "text": "What is it?"}]
    encoded = processing_class.apply_chat_template(
        [[{"role": "user", "content": content}]] * group,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    prompt = dict(encoded)
    pixels = processing_class.processed(int(prompt["pixel_values"][0, 0])).inputs["pixel_values"]
    with_pixels = {key: prompt[key] for key in ("input_ids", "attention_mask")}
    with_pixels["pixel_values"] = pixels.repeat(group, 1, 1, 1)
    generator = torch.Generator().manual_seed(0)
    own = torch.randint(100, 300, (group, completion), generator=generator)
    rows = {
        "input_ids": torch.cat([prompt["input_ids"], own], dim=1),
        "attention_mask": torch.cat([prompt["attention_mask"], torch.ones_like(own)], dim=1),
    }
    return (with_pixels, prompt), (with_pixels | rows, prompt | rows), own


def update(model, batch, own):
    """Log-probs (B, C) of the completions, and the adapter's gradients, flattened."""
    model.zero_grad()
    logits = model(**batch, use_cache=False, logits_to_keep=own.shape[1] + 1).logits[:, :-1]
    log_probs = logits.log_softmax(-1).gather(-1, own.unsqueeze(-1)).squeeze(-1)
    log_probs.mean().backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return log_probs.detach(), torch.cat(gradients)


def timed(function, *arguments):
    """Seconds of one call, and its result."""
    begin = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - begin, result


def measure(group: int, completion: int, tiles: int, repeats: int, layers: int, width: int) -> str:
    """One row of the table."""
    stock, ours, policy = models(tiles, layers, width)
    prompts, rows, own = batches(policy, group, completion, tiles)
    settings = {"max_new_tokens": completion, "min_new_tokens": completion, "do_sample": True}
    pairs = list(zip((stock, ours), prompts, rows, strict=True))
    updates, rollouts, results = [[], []], [[], []], [None, None]
    for turn in range(repeats + 1):
        for side, (model, prompt, batch) in enumerate(pairs):
            seconds, results[side] = timed(update, model, batch, own)
            rollout, _ = timed(lambda m=model, p=prompt: m.generate(**p, **settings))
            if turn:  # the first is a warm-up
                updates[side].append(seconds)
                rollouts[side].append(rollout)
    (stock_logps, stock_grads), (our_logps, our_grads) = results
    length = rows[0]["input_ids"].shape[1]
    computed = length - completion + group * completion
    ratio = [statistics.median(side[0]) / statistics.median(side[1]) for side in (updates, rollouts)]
    logp_difference = (stock_logps - our_logps).abs().max()
    gradient_difference = (stock_grads - our_grads).abs().max() / stock_grads.abs().max()
    return (
        f"| {group} | {tiles} | {length - completion} | {completion} | {group * length / computed:.2f} "
        f"| {ratio[0]:.2f} | {ratio[1]:.2f} | {logp_difference:.1e} | {gradient_difference:.1e} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--tiles", type=int, nargs="+", default=[1, 7, 13], choices=[1, 7, 13])
    parser.add_argument("--completion", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    cpu = platform.processor() or platform.machine()
    print(f"{cpu}, {torch.get_num_threads()} threads, torch {torch.__version__}, float32")
    print("| G | tiles | prompt | completion | token ratio | update | rollout | log-probs | gradients |")
    print("|---|---|---|---|---|---|---|---|---|")
    for shape in itertools.product(options.group, options.completion, options.tiles):
        print(measure(*shape, options.repeats, options.layers, options.width), flush=True)


if __name__ == "__main__":
    main()
