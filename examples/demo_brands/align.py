"""The new projector learns to speak the decoder's language, on logos that are not of the task."""

from collections.abc import Sequence

import torch
from torch.nn import functional
from tqdm.auto import tqdm

BATCH = 32
LEARNING_RATE = 2e-3  # the highest of one cycle
SHARPNESS = 16.0  # of the softmax over cosines
SCALE_WEIGHT = 20.0  # of staying at the size of word embeddings


@torch.inference_mode()
def tower_features(policy, images: Sequence, batch_size: int = BATCH) -> torch.Tensor:
    """What the projector reads of each image: (images, image tokens, 4 x hidden size) after pixel shuffle."""
    model = policy.model
    features = []
    for start in tqdm(range(0, len(images), batch_size), desc="vision tower"):
        batch = list(images[start : start + batch_size])
        native = policy.processing_class.native_image_processor(images=batch, return_tensors="pt")
        hidden = model.vision_tower(pixel_values=native["pixel_values"]).last_hidden_state[:, 1:]
        side = int(hidden.shape[1] ** 0.5)
        grid = hidden.reshape(len(batch), side, side, -1)
        shuffled = model.pixel_shuffle(grid, scale_factor=model.config.downsample_ratio)
        features.append(shuffled.flatten(1, 2))
    return torch.cat(features)


def name_embeddings(policy, names: Sequence[str]) -> torch.Tensor:
    """Unit vectors (names, hidden size): the mean of a name's word embeddings, less that of all words."""
    embeddings = policy.get_input_embeddings().weight.detach()
    tokenizer = policy.processing_class.tokenizer
    ids = tokenizer(list(names), add_special_tokens=False)["input_ids"]
    means = torch.stack([embeddings[name].mean(0) for name in ids])
    return functional.normalize(means - embeddings.mean(0), dim=1)


def align(policy, images: Sequence, names: Sequence[str], epochs: int, seed: int) -> float:
    """Train the projector, in place, so that some token of an image looks like its logo's name.

    Cross-entropy over all names of a soft maximum over image tokens; tower and decoder stay as they are.

    Args:
        policy: Its tower, decoder and word embeddings are only read.
        images: N pictures, `BATCH` or more.
        names: What is on each.
        epochs: Passes over the pictures.
        seed: Of their order, and of dropout.

    Returns:
        Share of the training pictures that are nearest to their own name afterwards, 0 to 1.

    Raises:
        ValueError: If the pictures make no batch.
    """
    if len(images) < BATCH:
        raise ValueError(f"Got {len(images)} labelled pictures. Expected {BATCH} or more: a batch.")
    torch.manual_seed(seed)
    features = tower_features(policy, images)
    vocabulary = sorted(set(names))
    targets = name_embeddings(policy, vocabulary)
    labels = torch.tensor([vocabulary.index(name) for name in names])
    size = float(policy.get_input_embeddings().weight.detach().pow(2).mean().sqrt())
    projector = policy.model.multi_modal_projector.train()

    def scores(tokens: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(functional.normalize(tokens, dim=-1) @ targets.T * SHARPNESS, dim=1)

    batches = len(images) // BATCH
    optimizer = torch.optim.AdamW(projector.parameters(), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * batches)
    bar = tqdm(range(epochs), desc="aligning the projector")
    for _ in bar:
        for rows in torch.randperm(len(images))[: batches * BATCH].split(BATCH):
            tokens = projector(functional.dropout(features[rows], 0.2))
            sizes = (tokens.pow(2).mean(-1) + 1e-6).sqrt()
            loss = functional.cross_entropy(scores(tokens), labels[rows])
            total = loss + SCALE_WEIGHT * (sizes - size).pow(2).mean()
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            schedule.step()
        bar.set_postfix(loss=f"{loss.item():.2f}")
    projector.eval()
    with torch.inference_mode():
        return float((scores(projector(features)).argmax(1) == labels).float().mean())
