"""The Hub's documented rules for the metadata of a model card (hub-docs: model cards, modelcard.md)."""

import re
from typing import Any

import yaml
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils import validate_repo_id

LICENSES = {
    *("apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-sa-4.0", "gemma", "llama3.2"),
    *("llama4", "gpl-3.0", "openrail", "other", "unknown"),
}
PIPELINES = {"image-text-to-text", "text-generation", "image-classification", "visual-question-answering"}
RELATIONS = {"adapter", "finetune", "merge", "quantized"}
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z]+)?|multilingual|code")
# Not the Hub's: misspellings of its keys, which it would take for keys of the user's own.
MISSPELT = {"licence": "license", "pipeline-tag": "pipeline_tag", "base-model": "base_model"}


def problems(content: str) -> list[str]:
    """What is wrong with a card; [] for a good one."""
    block = REGEX_YAML_BLOCK.search(content)
    if block is None:
        return ["empty or missing yaml metadata in repo card"]
    try:
        data = yaml.safe_load(block.group(2))
    except yaml.YAMLError as error:
        return [f"not YAML: {error}"]
    if not isinstance(data, dict):
        return ["metadata is not a mapping"]
    return [*_keys(data), *_model_index(data.get("model-index"))]


def _keys(data: dict[str, Any]):
    for wrong, right in MISSPELT.items():
        if wrong in data:
            yield f"{wrong!r} should be {right!r}"
    if data.get("license") not in {None, *LICENSES}:
        yield f"license must be one of the Hub's, got {data['license']!r}"
    if data.get("license") == "other" and not data.get("license_name"):
        yield "license 'other' needs license_name"
    if data.get("pipeline_tag") not in {None, *PIPELINES}:
        yield f"unknown pipeline_tag {data['pipeline_tag']!r}"
    if data.get("base_model_relation") not in {None, *RELATIONS}:
        yield f"unknown base_model_relation {data['base_model_relation']!r}"
    for key in ("tags", "datasets", "language"):
        values = data.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            yield f"{key} must be a list of strings"
    for language in data.get("language", []):
        if not LANGUAGE.fullmatch(language):
            yield f"language must be an ISO 639 code, got {language!r}"
    bases = data.get("base_model", [])
    for repo_id in [*([bases] if isinstance(bases, str) else bases), *data.get("datasets", [])]:
        try:
            validate_repo_id(repo_id)
        except ValueError as error:
            yield str(error)


def _model_index(index: Any):
    if index is None:
        return
    if not isinstance(index, list):
        yield "model-index must be a list"
        return
    for model in index:
        if not model.get("name"):
            yield "model-index[].name is missing"
        for result in model.get("results", []):
            for path in ("task.type", "dataset.type", "dataset.name"):
                outer, inner = path.split(".")
                if not isinstance(result.get(outer, {}).get(inner), str):
                    yield f"model-index[].results[].{path} is missing"
            for metric in result.get("metrics", []):
                if not metric.get("type") or "value" not in metric:
                    yield "model-index[].results[].metrics[] needs type and value"
