"""`native_inputs`: tickets become exactly the native processor's tensors, and stock computes."""

import copy
import functools

import pytest
import torch
from transformers import AutoConfig, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy, ImageError, TicketError, UnsupportedModelError
from hf_vlm_rl.cli.check import facts
from hf_vlm_rl.compat import CACHE
from hf_vlm_rl.errors import SelfCheckError
from hf_vlm_rl.families import VLMFamily, tiny
from hf_vlm_rl.loading.stock import complete_family, skeleton
from tests.conformance.cases import native, no_image, one_image, tickets, two_images, user
from tests.images import photo

# Mllama attends to images across, Phi-4 names its pixels otherwise, Emu3 pads images to the largest.
NATIVE = ("mllama", "phi4_multimodal", "emu3")
# Others, asked to.
ASKED = ("llava", "qwen2_vl", "gemma3", "idefics2", "idefics3", "llava_onevision")

# Their native call makes tensors that do not fit together where one row of several has no image.
NO_TEXT_ROWS = ("mllama",)

# The same tensors through the same kernels; a scatter may add gradients in another order.
ATOL = 1e-6

asked = functools.partial(AutoVLMPolicy.from_pretrained, dtype="float32", native_inputs=True)


@pytest.fixture
def pair(checkpoint):
    """`pair(family)`: a policy with native inputs, the stock model and its processor."""

    def load(family):
        directory = checkpoint(family)
        policy = policy_of(directory)
        config = AutoConfig.from_pretrained(directory)
        bare = tiny.auto_class(config).from_pretrained(directory, dtype=torch.float32).eval()
        processor = AutoProcessor.from_pretrained(directory, padding_side="left")
        # Phi-4's processor leaves the template to its tokenizer.
        processor.chat_template = processor.chat_template or processor.tokenizer.chat_template
        return copy.deepcopy(policy).eval(), bare, processor

    return load


@functools.cache
def policy_of(directory):
    return asked(directory)


def rows_of(family):
    rows = [one_image(), two_images(), user("And this?", photo("rocket", (84, 224)))]
    return rows if family in NO_TEXT_ROWS else [*rows, no_image()]


def seen(model, batch):
    """Logits at the tokens of a batch."""
    return model(**batch).logits[batch["attention_mask"].bool()]


def assert_equal_gradients(policy, bare):
    for (name, parameter), expected in zip(policy.named_parameters(), bare.parameters(), strict=True):
        assert (parameter.grad is None) == (expected.grad is None), name
        if expected.grad is not None:
            torch.testing.assert_close(parameter.grad, expected.grad, atol=ATOL, rtol=1e-5, msg=name)


def with_completions(batch, length=4):
    """A native batch with tokens behind its prompts, and what belongs to tokens as generate extends it."""
    rows = len(batch["input_ids"])
    extended = dict(batch)
    ids = torch.randint(1, 100, (rows, length), generator=torch.manual_seed(1))
    mask = torch.ones(rows, length, dtype=torch.long)
    mask[0, -1] = 0  # one answer is shorter
    extended["input_ids"] = torch.cat([batch["input_ids"], ids], dim=1)
    extended["attention_mask"] = torch.cat([batch["attention_mask"], mask], dim=1)
    for name in extended.keys() & {"token_type_ids", "mm_token_type_ids"}:
        extended[name] = torch.cat([batch[name], torch.zeros_like(ids)], dim=1)
    if "cross_attention_mask" in batch:
        last = batch["cross_attention_mask"][:, -1:].expand(-1, length, -1, -1)
        extended["cross_attention_mask"] = torch.cat([batch["cross_attention_mask"], last], dim=1)
    return extended


@pytest.mark.parametrize("make", [one_image, two_images])
@pytest.mark.parametrize("family", NATIVE)
def test_rows_equal_stock(family, make, pair):
    policy, bare, processor = pair(family)
    with torch.no_grad():
        ours = seen(policy, tickets(policy.processing_class, [make()]))
        assert torch.equal(ours, seen(bare, native(processor, [make()])))


@pytest.mark.parametrize("family", NATIVE + ASKED)
def test_a_padded_batch_with_completions_equals_stock_in_values_and_gradients(family, pair):
    policy, bare, processor = pair(family)
    rows = rows_of(family)
    stock = with_completions(native(processor, rows))
    ours = tickets(policy.processing_class, rows)
    ours |= {name: stock[name] for name in ("input_ids", "attention_mask")}
    weight = torch.randn(policy.config.get_text_config().vocab_size, generator=torch.manual_seed(0))
    found, expected = seen(policy, ours), seen(bare, stock)
    torch.testing.assert_close(found, expected, atol=ATOL, rtol=0)
    (found @ weight).sum().backward()
    (expected @ weight).sum().backward()
    # One scale for all families.
    largest = max(parameter.grad.abs().max() for parameter in bare.parameters() if parameter.grad is not None)
    for model in (policy, bare):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= largest
    assert_equal_gradients(policy, bare)


@pytest.mark.parametrize("family", NATIVE)
def test_the_backbone_alone_equals_stock(family, pair):
    policy, bare, processor = pair(family)
    rows = rows_of(family)[:3]
    with torch.no_grad():
        ours = policy.base_model(**tickets(policy.processing_class, rows)).last_hidden_state
        assert torch.equal(ours, bare.base_model(**native(processor, rows)).last_hidden_state)


@pytest.mark.parametrize("family", NATIVE)
def test_any_rows_of_a_batch_equal_stock_on_these_rows(family, pair):
    policy, bare, processor = pair(family)
    batch = tickets(policy.processing_class, rows_of(family)[:3])
    # Trainers cut a batch by its rows; the second has images 1 and 2.
    chosen = {name: batch[name][[2, 1]] for name in ("input_ids", "attention_mask")}
    chosen |= {name: batch[name][[3, 1, 2]] for name in ("pixel_values", "image_grid_thw")}
    with torch.no_grad():
        stock = native(processor, [rows_of(family)[2], rows_of(family)[1]])
        torch.testing.assert_close(seen(policy, chosen), seen(bare, stock), atol=2e-5, rtol=0)


@pytest.mark.parametrize("family", NATIVE)
def test_text_alone_equals_stock(family, pair):
    policy, bare, processor = pair(family)
    with torch.no_grad():
        ours = seen(policy, tickets(policy.processing_class, [no_image()]))
        assert torch.equal(ours, seen(bare, native(processor, [no_image()])))


@pytest.mark.parametrize("family", NATIVE)
def test_native_pixels_are_accepted_as_the_bare_model_accepts_them(family, pair):
    policy, bare, processor = pair(family)
    batch = native(processor, [two_images()])
    with torch.no_grad():
        assert torch.equal(seen(policy, batch), seen(bare, batch))


@pytest.mark.parametrize("family", NATIVE)
def test_generate_samples_what_stock_samples(family, pair):
    policy, bare, processor = pair(family)
    rows = rows_of(family)[:3]
    stock = bare.generate(
        **native(processor, rows),
        max_new_tokens=6,
        do_sample=False,
        suppress_tokens=list(policy.placeholder_ids),
    )
    ours = policy.generate(**tickets(policy.processing_class, rows), max_new_tokens=6, do_sample=False)
    assert torch.equal(ours, stock)


@pytest.mark.parametrize("family", ["phi4_multimodal", "emu3"])
def test_tickets_inside_ids_are_the_same_images(family, pair):
    policy, bare, processor = pair(family)
    processing = policy.processing_class
    prompts = [processing.encode_prompt(row) for row in rows_of(family)]
    inside = processing.pad(prompts, return_tensors="pt")
    kept = [i for i in range(policy.config.get_text_config().vocab_size) if i not in policy.placeholder_ids]
    stock = native(processor, rows_of(family))
    with torch.no_grad():
        assert torch.equal(seen(policy, dict(inside))[:, kept], seen(bare, stock)[:, kept])
        sampled = policy.generate(**inside, max_new_tokens=4, do_sample=False)
        expected = bare.generate(
            **stock, max_new_tokens=4, do_sample=False, suppress_tokens=list(policy.placeholder_ids)
        )
    assert torch.equal(sampled[:, -4:], expected[:, -4:])
    assert torch.equal(sampled[:, :-4], inside["input_ids"])


def test_an_image_of_one_token_has_no_room_for_a_ticket(pair):
    policy, _, _ = pair("mllama")
    with pytest.raises(TicketError, match="1 placeholder"):
        policy.processing_class.encode_prompt(one_image())


@pytest.mark.parametrize("family", NATIVE)
def test_the_report_says_that_nothing_is_shared(family, pair):
    policy, _, _ = pair(family)
    assert policy.sharing_report()["native_inputs"] is True
    rows = [one_image()] * 2
    with torch.no_grad():
        policy(**tickets(policy.processing_class, rows), use_cache=False)
    report = policy.sharing_report()
    assert report["tokens"] == report["images_encoded"] == report["images_reused"] == 0
    assert any("native processor's tensors" in reason for reason in report["not_shared"])


def test_check_says_that_nothing_is_shared(checkpoint):
    said = dict(facts(str(checkpoint("mllama")), photo("cat", (84, 84))))
    assert "native processor's tensors" in said["sharing"]
    assert "native_inputs" in said["derived"]


def test_models_without_image_features_get_native_inputs_by_themselves(checkpoint):
    for family in ("mllama", "phi4_multimodal"):
        assert AutoVLMPolicy.from_pretrained(checkpoint(family), dtype="float32").family.native_inputs
    assert not AutoVLMPolicy.from_pretrained(checkpoint("llava"), dtype="float32").family.native_inputs


def test_where_images_depend_on_each_other_the_self_check_leads_to_native_inputs(checkpoint):
    with pytest.raises(SelfCheckError, match="native_inputs=True"):
        AutoVLMPolicy.from_pretrained(checkpoint("emu3"), dtype="float32", native_inputs=False)
    # Its tower normalises over the batch, so that they are what it gets unless told otherwise.
    assert AutoVLMPolicy.from_pretrained(checkpoint("emu3"), dtype="float32").family.native_inputs


def test_a_loaded_model_can_be_asked_for_native_inputs(checkpoint):
    config = AutoConfig.from_pretrained(checkpoint("llava"))
    processor = AutoProcessor.from_pretrained(checkpoint("llava"))
    policy = AutoVLMPolicy.from_config(config, processor, native_inputs=True)
    assert policy.family.native_inputs
    assert AutoVLMPolicy.from_model(policy, policy.processing_class) is policy
    with pytest.raises(ValueError, match="native_inputs=False"):
        AutoVLMPolicy.from_config(config, policy.processing_class, native_inputs=False)


def test_adapters_leave_the_tower_inside_a_decoder_alone(pair):
    policy, _, _ = pair("phi4_multimodal")
    targets = policy.lora_config().target_modules
    assert targets
    assert not any("embed_tokens_extend" in name for name in targets)
    both = policy.lora_config(target="language+projector").target_modules
    assert sorted(name.rpartition(".")[2] for name in set(both) - set(targets)) == [
        "img_projection_down",
        "img_projection_up",
    ]
    policy.freeze()
    assert not any(
        parameter.requires_grad
        for name, parameter in policy.named_parameters()
        if "img_processor" in name or "audio_embed" in name
    )


def test_images_with_different_options_are_no_batch(pair):
    policy, _, _ = pair("llava")
    processing = policy.processing_class
    text = processing.apply_chat_template([one_image()], tokenize=False)
    call = functools.partial(processing, text=text, images=[[photo("cat", (84, 84))]], return_tensors="pt")
    batches = [call(), call(images_kwargs={"image_mean": [0.1, 0.1, 0.1]})]
    both = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    with pytest.raises(ImageError, match="different options"):
        policy(**both)


def test_rows_that_the_native_processor_cannot_batch_are_refused(pair):
    policy, _, _ = pair("mllama")
    # Before transformers 5.23, the processor has a word of its own for it.
    with pytest.raises(ImageError, match=r"2 rows, 1 of which have images|rows have \[1, 0\] images"):
        policy(**tickets(policy.processing_class, [one_image(), no_image()]))


def test_options_of_a_call_reach_the_model(pair):
    policy, bare, processor = pair("mllama")
    text = processor.apply_chat_template([one_image()], tokenize=False)
    call = {
        "text": text,
        "images": [[photo("cat", (84, 84))]],
        "images_kwargs": {"image_mean": [0.1, 0.1, 0.1]},
        "return_tensors": "pt",
    }
    with torch.no_grad():
        ours, stock = seen(policy, policy.processing_class(**call)), seen(bare, processor(**call))
    assert torch.equal(ours, stock)


def test_images_behind_a_cache_are_refused(pair):
    policy, _, _ = pair("phi4_multimodal")
    with torch.no_grad():
        first = policy(**tickets(policy.processing_class, [no_image()]), use_cache=True)
        batch = tickets(policy.processing_class, [one_image()])
        batch.pop("attention_mask")
        with pytest.raises(ImageError, match="cached tokens"):
            policy(**batch, **{CACHE: first[CACHE]})


@pytest.mark.parametrize("name", ["Florence2Config", "Pix2StructConfig", "T5Gemma2Config"])
def test_encoder_decoder_models_are_refused(name, native_processor_for):
    import transformers

    model = skeleton(getattr(transformers, name)())
    with pytest.raises(UnsupportedModelError, match="encoder-decoder"):
        complete_family(model, native_processor_for("llava"))


def test_models_that_do_not_write_token_by_token_are_refused(native_processor_for):
    from transformers import PI0Config

    with pytest.raises(UnsupportedModelError, match="token by token"):
        complete_family(skeleton(PI0Config()), native_processor_for("llava"))


def test_a_row_may_ask_for_native_inputs(checkpoint):
    config = AutoConfig.from_pretrained(checkpoint("vipllava"))
    AutoVLMPolicy.register_family(VLMFamily("vipllava", native_inputs=True))
    try:
        family = complete_family(skeleton(config), AutoProcessor.from_pretrained(checkpoint("vipllava")))
    finally:
        from hf_vlm_rl.families.table import FAMILIES

        del FAMILIES["vipllava"]
    assert family.native_inputs
    assert family.companions == ()
