"""`hf-vlm-rl push`: an adapter and its card go to the Hub."""

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `push`."""
    parser.add_argument("folder", help="with the adapter, as save_adapter or trainer.save_model wrote it")
    parser.add_argument("repo_id", help="user/name, or name for your own account; created if needed")
    parser.add_argument("--base-model", help="id of the base on the Hub, if it was loaded from a local path")
    parser.add_argument("--base-revision", help="commit, tag or branch of the base")
    parser.add_argument("--summary", help="what the adapter does")
    parser.add_argument("--license", help="default: the license of the base")
    parser.add_argument("--result", type=Path, help="the adapter's result.json of `hf-vlm-rl eval`")
    parser.add_argument("--before", type=Path, help="the base's, on the same rows")
    parser.add_argument("--dataset", help="name of the evaluated rows; tasks of lmms-eval have their own")
    parser.add_argument("--private", action="store_true", default=None, help="create a private repository")
    parser.add_argument("--revision", help="branch to push to (default: main)")
    parser.add_argument("--create-pr", action="store_true", help="open a pull request instead of committing")
    parser.add_argument("--message", help="commit message")


def run(options: argparse.Namespace) -> None:
    """Push an adapter from a folder to the Hub, with a card. Log in first: `hf auth login`."""
    if options.result is None and (options.before is not None or options.dataset is not None):
        raise ValueError("Got --before or --dataset without --result. They say more about a result: add it.")
    from ..hub.push import push_folder

    card = {"summary": options.summary, "license": options.license, "evaluations": _evaluations(options)}
    commit = push_folder(
        options.folder,
        options.repo_id,
        card={key: value for key, value in card.items() if value is not None} or None,
        base_model=options.base_model,
        base_revision=options.base_revision,
        private=options.private,
        revision=options.revision,
        create_pr=options.create_pr,
        commit_message=options.message,
    )
    print(commit.pr_url or commit.commit_url)  # noqa: T201


def _evaluations(options: argparse.Namespace) -> list | None:
    if options.result is None:
        return None
    from ..evaluation.comparison import compare
    from ..evaluation.result import EvaluationResult

    result = EvaluationResult.load(options.result)
    if options.before is None:
        return result.evaluations(options.dataset)
    return compare(EvaluationResult.load(options.before), result).evaluations(options.dataset)
