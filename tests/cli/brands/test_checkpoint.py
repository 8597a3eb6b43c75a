"""The checkpoint made of the packages is the models that they hold."""

import json

import pytest
import torch

pytestmark = pytest.mark.slow


def test_no_tensor_is_missing_and_none_is_left_over(joined):
    from transformers import InternVLForConditionalGeneration

    _, report = InternVLForConditionalGeneration.from_pretrained(joined, output_loading_info=True)
    assert not any(report.values()), report
    # It would make trainers refuse weights that are float32 by now.
    assert "quantization_config" not in (joined / "config.json").read_text()
    assert json.loads((joined / "config.json").read_text())["architectures"] == [
        "InternVLForConditionalGeneration"
    ]


def test_the_policy_has_the_knowledge_of_its_decoder(joined):
    from hf_vlm_rl import AutoVLMPolicy

    policy = AutoVLMPolicy.from_pretrained(joined, dtype="float32")
    assert "Paris" in policy.chat("What is the capital of France?", max_new_tokens=12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_checks_of_the_decoder_find_no_more_than_rounding(joined, dtype):
    """Trained weights make more of rounding than random ones, most of all on special tokens."""
    from hf_vlm_rl import AutoVLMPolicy
    from tests.conformance.cases import one_image, tickets, two_images

    policy = AutoVLMPolicy.from_pretrained(joined, dtype=dtype, sharing=True).eval()
    batch = tickets(policy.processing_class, [one_image()] * 4 + [two_images()] * 2)
    with torch.no_grad():
        policy(**batch, use_cache=False)
    torch.manual_seed(0)
    policy.generate(**batch, max_new_tokens=12)
    report = policy.sharing_report()
    assert report["not_shared"] == report["rows_kept"] == {}
    assert report["prompts_prefilled"] == 2


def test_samples_are_those_of_the_stock_model(joined):
    """Of trained weights, in float32: prompts prefilled once, finished rows out of the batch."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from hf_vlm_rl import AutoVLMPolicy
    from tests.conformance.cases import native, one_image, tickets, two_images

    bare = AutoModelForImageTextToText.from_pretrained(joined, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(joined, padding_side="left")
    policy = AutoVLMPolicy.from_pretrained(joined, dtype="float32", sharing=True).eval()
    rows = [one_image()] * 4 + [two_images()] * 4
    batches = (bare, native(processor, rows)), (policy, tickets(policy.processing_class, rows))
    never = list(policy.placeholder_ids)
    for seed in (0, 1):
        sampled = []
        for model, batch in batches:
            torch.manual_seed(seed)
            sampled.append(model.generate(**batch, max_new_tokens=24, do_sample=True, suppress_tokens=never))
        assert torch.equal(*sampled)
    report = policy.sharing_report()
    assert (report["prompts"], report["prompts_prefilled"]) == (16, 4)


def test_the_tower_equals_the_onnx_graph(cache):
    """In onnx's own evaluator, at 224 pixels, the one size the graph takes; values are about 2 in size."""
    import onnx
    from onnx.reference import ReferenceEvaluator
    from transformers import InternVLVisionConfig
    from transformers.models.internvl.modeling_internvl import InternVLVisionModel

    from examples.demo_brands.packages import TOWER, fetch
    from examples.demo_brands.tower import load_graph, tower_weights, vision_config

    graph = load_graph(fetch(TOWER, cache))
    tower = InternVLVisionModel(InternVLVisionConfig(**vision_config(224))).eval()
    tower.load_state_dict(tower_weights(graph, 224))
    pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    last = "/backbone/layernorm/Add_1_output_0"
    end = next(index for index, node in enumerate(graph.node) if last in node.output)
    del graph.node[end + 1 :]
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, None))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)])
    (expected,) = ReferenceEvaluator(model).run(None, {"input_image": pixels.numpy()})
    with torch.no_grad():
        found = tower(pixel_values=pixels).last_hidden_state
    assert found.shape == (1, 257, 384)
    torch.testing.assert_close(found, torch.from_numpy(expected), atol=1e-4, rtol=0)
