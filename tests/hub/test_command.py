"""`hf-vlm-rl push` as a process of its own, with the Hub's own environment variables."""

import subprocess

import pytest
from huggingface_hub import ModelCard

from hf_vlm_rl.cli import commands as cli
from hf_vlm_rl.hub import save_adapter
from tests.evaluation.test_results import result_of
from tests.hub.conftest import client_environment, python
from tests.hub.server import ALICE

REPO = "alice/adapter"


@pytest.fixture
def folder(hub, trainer, tmp_path):
    save_adapter(trainer, tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.mark.slow
def test_the_command_pushes_to_the_hub_of_the_environment(hub, folder, tmp_path):
    command = python("-m", "hf_vlm_rl.cli", "push", str(folder), REPO, "--private", "--message", "By hand")
    environment = client_environment(hub, tmp_path) | {"HF_TOKEN": ALICE}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    commit = hub.repositories[REPO].head()
    assert done.stdout.strip() == f"{hub.url}/{REPO}/commit/{commit.oid}"
    assert (commit.message, hub.repositories[REPO].private) == ("By hand", True)


def test_the_command_writes_what_it_is_told_into_the_card(hub, folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", ALICE)
    given = ["--summary", "Says what it sees.", "--license", "mit", "--base-model", "org/other"]
    assert cli.main(["push", str(folder), REPO, *given]) == 0
    content = hub.files(REPO)["README.md"].decode()
    data = ModelCard(content).data
    assert (data.license, data.base_model) == ("mit", "org/other")
    assert "Says what it sees." in content


@pytest.fixture
def measured(tmp_path):
    """Files with 4 of 16 rows right, and with 12 of the same rows."""

    def written(name: str, right: int):
        result_of(rows=16, choice_reward=[float(row < right) for row in range(16)]).save(tmp_path / name)
        return str(tmp_path / name)

    return written("before.json", 4), written("after.json", 12)


def test_results_of_evaluations_go_into_the_card(hub, folder, measured, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", ALICE)
    before, after = measured
    shown = ["--result", after, "--dataset", "Brands, held out"]
    for given, earlier in ((shown, None), ([*shown, "--before", before], 0.25)):
        assert cli.main(["push", str(folder), REPO, *given]) == 0
        [result] = ModelCard(hub.files(REPO)["README.md"].decode()).data.eval_results
        assert (result.dataset_name, result.metric_value) == ("Brands, held out", 0.75)
        assert result.metric_args["n"] == 16
        assert result.metric_args.get("before") == earlier


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--result", "adapter/adapter_config.json"], "Expected the JSON that EvaluationResult.save wrote"),
        (["--result", "gone.json"], "gone.json"),
        (["--result", "after.json"], "Got no dataset for ['choice_reward']"),
        (["--before", "before.json"], "without --result"),
        (["--dataset", "Brands"], "without --result"),
    ],
)
def test_results_that_cannot_be_shown_are_refused_before_anything_is_pushed(
    hub, folder, measured, monkeypatch, capsys, given, message
):
    monkeypatch.setenv("HF_TOKEN", ALICE)
    monkeypatch.chdir(folder.parent)
    assert cli.main(["push", str(folder), REPO, *given]) == 1
    assert message in capsys.readouterr().err
    assert REPO not in hub.repositories


def test_the_command_ends_with_the_error_and_status_1(hub, folder, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", ALICE)
    assert cli.main(["push", str(folder), "bob/adapter"]) == 1
    message = capsys.readouterr().err
    assert "hf-vlm-rl push: bob/adapter belongs to somebody else" in message
    assert "with --create-pr." in message
    assert cli.main(["push", str(folder), REPO, "--base-model", "not an id"]) == 1
    assert "Got --base-model not an id. Expected an id on the Hub" in capsys.readouterr().err
