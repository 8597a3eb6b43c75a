"""VLM-R1's own trainer on a tiny model; arguments: checkpoint, rows, folder of images, file for the log.

Runs with the transformers and TRL that VLM-R1 names. Its script `grpo_jsonl.py` patches flash attention and
needs a GPU, so what that script makes of a row is made here.
"""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from datasets import Dataset
from trl import GRPOConfig

from .alike import is_right, same_start

# Its module for GLM needs a newer transformers than the one that VLM-R1 asks for.
sys.modules["open_r1.vlm_modules.glm_module"] = SimpleNamespace(GLMVModule=None)

from open_r1.trainer.grpo_trainer import VLMGRPOTrainer  # noqa: E402
from open_r1.vlm_modules.qwen_module import Qwen2VLModule  # noqa: E402

# It chooses a class by this word in the name.
NAME = "Qwen2.5-VL-tiny"


def old_checkpoint(checkpoint: Path, folder: Path) -> Path:
    """The checkpoint as transformers 4.49 reads it: a flat config, and the processor's files of that time."""
    model = folder / NAME
    shutil.copytree(checkpoint, model)
    config = json.loads((model / "config.json").read_text())
    text, vision = config.pop("text_config"), config["vision_config"]
    rope = text.pop("rope_parameters")
    vision["in_chans"] = vision["in_channels"]
    text |= {"rope_theta": rope["rope_theta"]}
    text |= {"rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    config = {"torch_dtype": "float32"} | text | config
    for name in ("dtype", "layer_types"):
        config.pop(name)
    (model / "config.json").write_text(json.dumps(config))
    images = json.loads((model / "processor_config.json").read_text())["image_processor"]
    images |= {"processor_class": "Qwen2_5_VLProcessor"}
    (model / "preprocessor_config.json").write_text(json.dumps(images))
    (model / "processor_config.json").unlink()
    template = (model / "chat_template.jinja").read_text()
    tokenizer = json.loads((model / "tokenizer_config.json").read_text())
    tokenizer |= {"tokenizer_class": "Qwen2TokenizerFast", "chat_template": template}
    tokenizer.pop("extra_special_tokens")
    (model / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (model / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    return model


def conversation(row: dict, folder: Path) -> dict:
    """What `make_conversation_from_jsonl` makes of a row."""
    question = Qwen2VLModule.get_question_template("rec").format(
        Question=row["problem"].replace("<image>", "")
    )
    content = [{"type": "image", "text": None}, {"type": "text", "text": question}]
    return {
        "image_path": [str(folder / row["image"])],
        "problem": row["problem"],
        "solution": f"<answer> {row['solution']} </answer>",
        "prompt": [{"role": "user", "content": content}],
    }


def main() -> None:
    torch.set_num_threads(1)
    checkpoint, file, folder, log = map(Path, sys.argv[1:])
    rows = [conversation(json.loads(line), folder) for line in file.read_text().splitlines()]
    trainer = VLMGRPOTrainer(
        model=str(old_checkpoint(checkpoint, log.parent)),
        reward_funcs=[is_right],
        args=GRPOConfig(
            output_dir=str(log.parent / "out"),
            beta=0.04,
            per_device_train_batch_size=4,
            num_generations=4,
            learning_rate=1e-3,
            max_steps=3,
            logging_steps=1,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
        ),
        vlm_module=Qwen2VLModule(),
        train_dataset=Dataset.from_list(rows),
        freeze_vision_modules=True,
        attn_implementation="sdpa",
        torch_dtype="float32",
        max_pixels=12845056,
        min_pixels=3136,
    )
    same_start(trainer.model)
    trainer.train()
    log.write_text(json.dumps(trainer.state.log_history))


if __name__ == "__main__":
    main()
