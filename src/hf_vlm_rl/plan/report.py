"""A plan as text: a table of parts, what was tried, and lines to paste."""

from .memory import GIB, Memory, Plan
from .settings import Run, Settings

QUANTISED = """BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype="bfloat16",
)"""

SHARED = "Rows share within a forward: a step on a CPU gained 4.8 times with 8 rows in one, 1.8 times with 1."


def report(plan: Plan, run: Run) -> str:
    """The text that `hf-vlm-rl plan` prints."""
    settings, memory = plan.best
    lines = [
        f"parameters: {parameters(memory.parameters, memory.active)}",
        f"prompt: {memory.prompt} tokens, {memory.image_tokens} of them image; "
        f"completion: {run.completion}; GPU: {plan.capacity / GIB:.1f} GiB x {run.gpus}",
        "",
        "GiB on each GPU with: " + describe(settings),
        *(f"  {name:<34}{size / GIB:8.2f}" for name, size in parts(memory)),
        "",
        "tried",
        *(
            f"  {describe(tried):<62}{needed.total / GIB:8.2f}  "
            + ("fits" if needed.total <= plan.capacity else "too much")
            for tried, needed in plan.tried
        ),
        "",
    ]
    if plan.fits:
        lines += [SHARED, "", paste(settings, run)]
    else:
        more = (memory.total - plan.capacity) / GIB
        lines += [
            f"Nothing fits: the least needs {memory.total / GIB:.1f} GiB on each GPU, {more:.1f} more than "
            "there is. Take a smaller image, a shorter completion or another model."
        ]
    return "\n".join(lines)


def parameters(total: int, active: int | None) -> str:
    """The number of parameters, and of those that a token meets where these are fewer or not known."""
    if active == total:
        return f"{total:,}"
    return (
        f"{total:,}, "
        + ("an unknown part of them" if active is None else f"{active:,}")
        + " active for a token"
    )


def parts(memory: Memory) -> list[tuple[str, int]]:
    """Rows of the table: name and bytes."""
    rollout = memory.rollout
    return [
        *((f"weights: {part}", size) for part, size in memory.weights.items()),
        *([("weights: reference model", memory.reference)] if memory.reference else []),
        *([("layers gathered by ZeRO-3", memory.gathered)] if memory.gathered else []),
        ("optimizer", memory.optimizer),
        ("update: gradients", memory.gradients),
        ("update: activations and logits", memory.update),
        ("rollout, instead of the update", rollout.peak),
        ("  its KV cache (stock: " + f"{rollout.stock / GIB:.2f})", rollout.cache),
        ("CUDA and fragmentation", memory.overhead),
        ("total", memory.total),
    ]


def describe(settings: Settings) -> str:
    """Settings in one line."""
    recomputed = "checkpointing" if settings.checkpointing else "no checkpointing"
    return (
        f"{settings.precision}, {recomputed}, G={settings.group}, {settings.rows} rows x "
        f"{settings.accumulation} accumulated"
    )


def paste(settings: Settings, run: Run) -> str:
    """The settings as Python."""
    loading = (
        f"quantization_config={QUANTISED}"
        if settings.precision == "4bit"
        else f'dtype="{"float32" if settings.precision == "fp32" else "bfloat16"}"'
    )
    adapter = f'peft_config = policy.lora_config(r={run.rank}, target="{run.target}")\n' if run.rank else ""
    if run.rank is None and not run.vision:
        adapter = "policy.freeze(vision=True, projector=False)\n"
    return (
        f"policy = AutoVLMPolicy.from_pretrained(MODEL, {loading})\n{adapter}"
        "args = GRPOConfig(\n"
        '    output_dir="out",\n'
        f"    per_device_train_batch_size={settings.rows},\n"
        f"    gradient_accumulation_steps={settings.accumulation},\n"
        f"    num_generations={settings.group},\n"
        f"    max_completion_length={run.completion},\n"
        f"    gradient_checkpointing={settings.checkpointing},\n"
        f"    bf16={settings.precision != 'fp32'},\n"
        f"    beta={run.beta},\n"
        ")"
    )
