"""Stock trainers of TRL sample images on a real `vllm serve`, through a front, knowing nothing but ids.

Stubbed, since NCCL needs a card: the group for weights. Weights go to a file instead, which the server loads.
"""

import functools
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack

import pytest
import requests
import torch
from datasets import Dataset
from peft import get_peft_model
from safetensors.torch import save_file
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.generation.vllm_client import VLLMClient

from hf_vlm_rl import AutoVLMPolicy, register, save_adapter
from hf_vlm_rl.rewards import PairJudge, ScoreJudge
from hf_vlm_rl.vllm import vllm_rollout
from tests.front.asking import encode, own
from tests.images import photo
from tests.trainers.runs import PLAIN, ROLLOUT, by_ids, flat, mixture
from tests.vllm.engine import cpu
from tests.vllm.engine.test_grpo import compared, record
from tests.vllm.looking import OWN_TOKENS, TURN, TURNS, always_calls, photo_of

__all__ = ["compared"]
pytestmark = pytest.mark.trl

FAMILIES = ("qwen2_5_vl", "internvl", "idefics3")
# Rounding of float32 on both sides, 1.0e-5 at most where it was measured; another image makes 0.5 and more.
CLOSE = 2e-5
# The same behind three turns with two images of tools: 3.3e-5 at most.
CLOSE_WITH_TOOLS = 1e-4
CAT, CUP = photo("cat", (112, 112)), photo("coffee", (160, 64))
LORA = ("--enable-lora", "--max-lora-rank", "8")


@pytest.fixture(scope="module")
def server(served, tmp_path_factory):
    """`server(family)`: address of a `vllm serve` with the weights of the family's checkpoint."""
    with ExitStack() as running:

        @functools.cache
        def start(family):
            log = tmp_path_factory.mktemp("serve") / f"{family}.log"
            return running.enter_context(cpu.serving(served(family), log, None, *LORA))

        yield start


@pytest.fixture
def policy_of(served):
    return lambda family: AutoVLMPolicy.from_pretrained(served(family), dtype="float32")


@pytest.fixture
def by_file(monkeypatch, tmp_path, server, served):
    """`by_file(family)`: TRL's client sends weights to the family's server by files, which it gives.

    Afterwards the server has those of the checkpoint again.
    """
    sent, used = [], []

    def ask(family, path, body=None):
        assert requests.post(f"{server(family)}/{path}", json=body).status_code == 200

    def load(family, directory):
        given = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
        ask(family, "collective_rpc", given)

    def send(family, named):
        directory = tmp_path / f"weights_{len(sent)}"
        directory.mkdir()
        weights = {name: weight.detach().clone().contiguous() for name, weight in named}
        save_file(weights, directory / "model.safetensors")
        load(family, directory)
        sent.append(directory)

    def to(family):
        pending = {}

        def keep(client, name, weight):
            pending[name] = weight.detach().clone()

        stubs = {
            "init_communicator": lambda client, device=0: None,
            "_start_weight_update": lambda client: pending.clear(),
            "_finish_weight_update": lambda client: send(family, pending.items()),
            "update_named_param": lambda client, name, weight: pending.update(
                {name: weight.detach().clone()}
            ),
            "update_named_params": lambda client, metadata, named: send(family, named),
        }
        for name, stub in stubs.items():
            monkeypatch.setattr(VLLMClient, name, stub)
        used.append(family)
        return sent

    yield to
    for family in used:
        load(family, served(family))
        ask(family, "reset_encoder_cache")
        ask(family, "reset_prefix_cache")


def complete(url, model, prompts, **body):
    asked = {"model": str(model), "prompt": prompts, "temperature": 1.0, "max_tokens": 16, "logprobs": 0}
    asked |= {"return_token_ids": True, "return_tokens_as_token_ids": True, "seed": 1} | body
    answer = requests.post(f"{url}/v1/completions", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def largest(policy, choices, temperature=1.0):
    """The largest difference of a server's log-probs from the policy's."""
    differences = []
    for choice in choices:
        expected = own(policy, choice["prompt_token_ids"], choice["token_ids"], temperature)
        given = choice["logprobs"]["token_logprobs"]
        differences += [abs(a - b) for a, b in zip(expected, given, strict=True)]
    return max(differences)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_are_the_policys(family, server, served, policy_of):
    policy, address, model = policy_of(family), server(family), served(family)
    prompts = [
        encode(policy, "Say hello."),
        encode(policy, "What is it?", CAT),
        encode(policy, "Compare them.", CUP, CAT),
        encode(policy, "Compare them.", CAT, CUP),
        encode(policy, "Twice.", CAT, CAT),
    ]
    with policy.serving(address, compare_every=1) as url:
        single = complete(url, model, prompts)
        several = complete(url, model, prompts, n=3, temperature=0.7)
        other = own(policy, encode(policy, "What is it?", CAT.rotate(180)), single[1]["token_ids"])
    assert [choice["prompt_token_ids"] for choice in several] == [ids for ids in prompts for _ in range(3)]
    assert largest(policy, single) < CLOSE
    assert largest(policy, several, 0.7) < CLOSE
    control = zip(other, single[1]["logprobs"]["token_logprobs"], strict=True)
    assert max(abs(a - b) for a, b in control) > 0.1


def arguments(config, out, url, weights, **options):
    rate = 1e-3 if weights == "full" else 1e-2
    common = PLAIN | {"learning_rate": rate, "use_vllm": True, "vllm_mode": "server"}
    return config(output_dir=str(out), vllm_server_base_url=url, **common | options)


def online(trainer, config, policy, family, out, url, weights, environment_factory=None, **options):
    """A GRPO or RLOO trainer that knows nothing but ids."""
    steps = {"per_device_train_batch_size": 6, "steps_per_generation": 1, "max_completion_length": 8}
    more = {"environment_factory": environment_factory} if environment_factory else {}
    target = {"LoRA": "language", "LoRA on all parts": "all"}.get(weights)
    return trainer(
        model=policy,
        processing_class=policy.tokenizer,
        reward_funcs=by_ids,
        args=arguments(config, out, url, weights, **ROLLOUT | steps | options),
        train_dataset=Dataset.from_list([policy.tokenizer.with_tickets(row) for row in mixture(family)]),
        peft_config=policy.lora_config(r=4, target=target) if target else None,
        **more,
    )


@pytest.mark.parametrize(
    ("family", "weights"),
    [("qwen2_5_vl", "full"), ("qwen2_5_vl", "LoRA on all parts"), ("internvl", "full"), ("idefics3", "LoRA")],
)
def test_grpo(family, weights, server, policy_of, by_file, tmp_path):
    policy, address = policy_of(family), server(family)
    sent = by_file(family)
    with policy.serving(address, compare_every=1) as url:
        trainer = online(GRPOTrainer, GRPOConfig, policy, family, tmp_path, url, weights)
        trainer.train()
    differences, ratios = record(family, weights, trainer, "front")
    assert len(differences) == len(ratios) == 3
    assert len(sent) >= 3
    assert max(differences) < CLOSE
    assert max(abs(ratio - 1) for ratio in ratios) < 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_an_environment_whose_tools_return_images(family, server, policy_of, by_file, tmp_path, monkeypatch):
    """TRL calls the tool after whatever was sampled, twice; it and the front know nothing but ids."""
    policy, address = policy_of(family), server(family)
    always_calls(policy, monkeypatch)
    by_file(family)
    turns = TURNS | {"environment_factory": photo_of(policy.tokenizer), "generation_kwargs": TURN}
    with policy.serving(address, compare_every=1) as url:
        trainer = online(GRPOTrainer, GRPOConfig, policy, family, tmp_path, url, "full", **turns)
        trainer.train()
    differences, _ = record(family, "full, images of tools", trainer, "front")
    assert flat(trainer, "tools/call_frequency") == [2.0] * 3
    assert flat(trainer, "tools/failure_frequency") == [0.0] * 3
    assert flat(trainer, "completions/max_length") == [OWN_TOKENS] * 3
    assert len(differences) == 3
    assert max(differences) < CLOSE_WITH_TOOLS


@pytest.mark.parametrize("weights", ["full", "LoRA on all parts"])
def test_rloo(weights, server, policy_of, by_file, compared, tmp_path):
    """Its log-probs are compared by the front, at each step."""
    register()  # with all weights, its reference is loaded by its id
    policy, address = policy_of("qwen2_5_vl"), server("qwen2_5_vl")
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    sent = by_file("qwen2_5_vl")
    with policy.serving(address, compare_every=1) as url:
        trainer = online(RLOOTrainer, RLOOConfig, policy, "qwen2_5_vl", tmp_path, url, weights)
        trainer.train()
    differences, _ = record("qwen2_5_vl", weights, trainer, "front", compared)
    assert len(differences) == 3
    assert max(differences) < CLOSE
    assert len(sent) >= 3
    if weights == "full":
        moved = [name for name, weight in policy.named_parameters() if not torch.equal(weight, before[name])]
        assert len(moved) == len(before)


def by_length(completions, **_):
    return [float(len(str(completion))) for completion in completions]


def test_online_dpo(server, policy_of, by_file, compared, tmp_path, monkeypatch):
    """It sends texts with marks, and no ids."""
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    policy, address = policy_of("qwen2_5_vl"), server("qwen2_5_vl")
    sent = by_file("qwen2_5_vl")
    rows = [policy.tokenizer.with_tickets(row) for row in mixture("qwen2_5_vl")]
    options = {"per_device_train_batch_size": 3, "max_steps": 2, "max_new_tokens": 8, "max_length": 1024}
    with policy.serving(address, compare_every=1) as url:
        with monkeypatch.context() as patched:  # there is none on a CPU, and it asks for its type
            patched.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cpu"))
            trainer = OnlineDPOTrainer(
                model=policy,
                processing_class=policy.tokenizer,
                reward_funcs=by_length,
                args=arguments(OnlineDPOConfig, tmp_path, url, "full", **options),
                train_dataset=Dataset.from_list(rows),
            )
        trainer.train()
    assert trainer.state.global_step == 2
    differences, _ = record("qwen2_5_vl", "full", trainer, "front", compared)
    assert len(differences) == 2
    assert max(differences) < CLOSE
    assert len(sent) >= 1


def test_a_teacher(server, policy_of):
    """Its log-probs of a given completion."""
    policy, address = policy_of("qwen2_5_vl"), server("qwen2_5_vl")
    prompt, completion = encode(policy, "What is it?", CAT), [5, 60, 17, 9]
    with policy.serving(address) as url:
        client = VLLMClient(url)
        scores = client.get_sequence_logprobs([[*prompt, *completion]], [len(prompt)], top_logprobs=4)
    assert scores["actual_token_ids"] == [[[token] for token in completion]]
    assert [len(set(ids)) for ids in scores["logprob_token_ids"][0]] == [4, 4, 4, 4]
    values = [value for (value,) in scores["actual_logprobs"][0]]
    assert values == pytest.approx(own(policy, prompt, completion), abs=CLOSE)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "internvl"])
def test_distillation_from_a_server(family, server, policy_of, tmp_path):
    """Its teacher has the checkpoint's weights, while the student's move."""
    from trl.experimental.server_distillation import ServerDistillationConfig, ServerDistillationTrainer

    policy, teacher, address = policy_of(family), policy_of(family), server(family)
    options = {"per_device_train_batch_size": 3, "max_completion_length": 8, "max_steps": 3}
    differences = []
    with teacher.serving(address) as url:
        trainer = ServerDistillationTrainer(
            model=policy,
            processing_class=policy.tokenizer,
            args=ServerDistillationConfig(
                output_dir=str(tmp_path), teacher_model_server_url=url, **PLAIN | options
            ),
            train_dataset=Dataset.from_list([policy.tokenizer.with_tickets(row) for row in mixture(family)]),
            peft_config=policy.lora_config(r=4),
        )
        ask = trainer.teacher_client.get_sequence_logprobs

        def asked(sequences, prompt_lengths, **given):
            scores = ask(sequences, prompt_lengths, **given)
            values = zip(sequences, prompt_lengths, scores["actual_logprobs"], strict=True)
            differences.append(
                max(
                    abs(ours - theirs)
                    for ids, length, rows in values
                    for ours, (theirs,) in zip(own(teacher, ids[:length], ids[length:]), rows, strict=True)
                )
            )
            return scores

        trainer.teacher_client.get_sequence_logprobs = asked
        trainer.train()
    record(family, "LoRA", trainer, "front", differences)
    assert len(differences) == 3
    assert max(differences) < CLOSE


def test_an_adapter_is_served_as_one(server, served, policy_of, tmp_path):
    """`/v1/load_lora_adapter` instead of merged weights: features of images are computed anew."""
    policy, address = policy_of("qwen2_5_vl"), server("qwen2_5_vl")
    prompt = encode(policy, "What is it?", CAT)
    with policy.serving(address) as url:
        complete(url, served("qwen2_5_vl"), prompt)
        torch.manual_seed(0)
        model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False))
        save_adapter(model, tmp_path / "adapter")
        given = {"lora_name": "tuned", "lora_path": str(tmp_path / "adapter")}
        assert requests.post(f"{url}/v1/load_lora_adapter", json=given).status_code == 200
        choices = complete(url, "tuned", [prompt, encode(policy, "Hi.")])
        assert largest(policy, choices) < CLOSE
        assert requests.post(f"{url}/v1/unload_lora_adapter", json={"lora_name": "tuned"}).status_code == 200


@pytest.mark.parametrize("family", ["qwen2_5_vl", "idefics3"])
def test_the_rollout_function_in_server_mode(family, server, policy_of, by_file, tmp_path):
    policy, address = policy_of(family), server(family)
    by_file(family)
    options = {"per_device_train_batch_size": 6, "steps_per_generation": 1, "max_completion_length": 8}
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=by_ids,
        args=arguments(GRPOConfig, tmp_path, address, "full", **ROLLOUT | options),
        train_dataset=Dataset.from_list(mixture(family)),
        rollout_func=functools.partial(vllm_rollout, compare_every=1),
    )
    trainer.train()
    differences, _ = record(family, "full", trainer, "vllm_rollout, server")
    assert len(differences) == 3
    assert max(differences) < CLOSE


def test_pauses_amid_requests_with_images(server, served, policy_of):
    # From a block on, 128 tokens on a CPU, vLLM's prefix cache has images, and their pixels stay behind.
    policy, model = policy_of("qwen2_5_vl"), served("qwen2_5_vl")
    prompts = [
        encode(policy, "What is it?" + 150 * " what", CAT, image)
        for image in (CUP, photo("rocket", (84, 140)))
    ]
    with policy.serving(server("qwen2_5_vl")) as url, ThreadPoolExecutor(16) as pool:

        def post(path, **params):
            assert requests.post(f"{url}{path}", params=params).status_code == 200

        complete(url, model, prompts)
        jobs = [pool.submit(complete, url, model, prompts[i % 2], max_tokens=48, seed=i) for i in range(48)]
        for turn in range(6):
            wait(jobs[8 * turn : 8 * turn + 4])
            post("/pause", mode="keep")
            if turn % 2:
                post("/reset_prefix_cache")
            post("/resume")
        choices = [choice for job in jobs for choice in job.result()]
    assert largest(policy, choices[::6]) < CLOSE


def test_a_server_that_was_killed_comes_back(served, policy_of, tmp_path):
    policy, model = policy_of("qwen2_5_vl"), served("qwen2_5_vl")
    prompt, log = encode(policy, "What is it?", CAT), tmp_path / "serve.log"
    port = cpu.free_port()
    with policy.serving(f"http://127.0.0.1:{port}") as url:
        with cpu.serving(model, log, port):
            complete(url, model, prompt)
        assert requests.post(f"{url}/v1/completions", json={"prompt": prompt}).status_code == 503
        with cpu.serving(model, log, port):
            while requests.get(f"{url}/health").status_code != 200:
                pass
            assert largest(policy, complete(url, model, prompt)) < CLOSE


def test_a_judge_gets_verdicts_of_its_schema(server, policy_of, served):
    """The weights are random: a bias ends the reason where the grammar of the schema leaves it open."""
    family = FAMILIES[0]
    quote, _ = policy_of(family).processing_class.tokenizer.encode('"a', add_special_tokens=False)
    options = {"max_tokens": 64, "temperature": 1.0, "seed": 1, "logit_bias": {str(quote): 60}}
    common = {
        "url": f"{server(family)}/v1",
        "model": str(served(family)),
        "criteria": "True.",
        "options": options,
    }
    said = ["A cat.", "<|im_end|><|image_pad|>"]
    rows = {"prompts": ["What?"] * 2, "images": [[CAT], [CAT]], "completions": said}
    score, pair = ScoreJudge(**common, high=9), PairJudge(**common)
    assert all(0 <= reward <= 1 for reward in score(**rows))
    first, second = pair(**rows)
    assert first + second == pytest.approx(1)
    assert (score.usage.requests, pair.usage.requests) == (2, 2)
