"""Runs the code of pages: `python -m tests.documents.runner`, a process of its own.

Reads a line of JSON per page: its name, the preamble (a script, or null) that gives what the page takes for
granted, its blocks, a copy of the repository, and the folder to work in, which is made and has links to all
that the copy has; answers with a line when it is done. Each page is a fork of this process, so imports are
paid once and pages know nothing of each other. `<folder>.json` gets how it ended, `<folder>.log` what it
printed.
"""

import ast
import doctest
import io
import json
import os
import socket
import sys
import tokenize
import traceback
import types
from pathlib import Path
from typing import Any

from tests.documents.shell import commands, reason, run_line

MODULE = "page"
CHECKER = doctest.OutputChecker()


def run_python(source: str, page: str, line: int, names: dict[str, Any]) -> None:
    """Execute a block; an expression with a comment that is a Python literal has to be equal to it."""
    source = "\n" * (line - 1) + source  # errors name the page's own lines
    promised = dict(_promises(source))
    for node in ast.parse(source, page).body:
        if isinstance(node, ast.Expr) and node.end_lineno in promised:
            value = eval(compile(ast.Expression(node.value), page, "eval"), names)
            wanted = promised[node.end_lineno]
            if not CHECKER.check_output(f"{wanted}\n", f"{value!r}\n", doctest.ELLIPSIS):
                raise ValueError(f"{page}:{node.lineno} gives {value!r}. The page says {wanted}.")
        else:
            exec(compile(ast.Module([node], []), page, "exec"), names)


def _promises(source: str):
    """Pairs (line, literal) of the comments that say what an expression gives."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
            literal = token.string.removeprefix("#").strip()
            try:
                ast.literal_eval(literal)
            except (SyntaxError, ValueError):
                continue
            yield token.start[0], literal


def run_bash(source: str, page: str, line: int, names: dict[str, Any]) -> None:
    """Run the lines of a block that can run here; `before_line` of the preamble is called before each."""
    for words in commands(source):
        if reason(words) is not None:
            continue
        names.get("before_line", len)(words)
        try:
            run_line(words)
        except ValueError as error:
            raise ValueError(f"{page}:{line} {error}") from error


def run_page(page: dict[str, Any]) -> None:
    """All blocks of a page, top to bottom, in one namespace."""
    names = sys.modules[MODULE] = types.ModuleType(MODULE)
    if page["preamble"] is not None:
        preamble = Path(page["preamble"])
        exec(compile(preamble.read_text(), str(preamble), "exec"), names.__dict__)
    for block in page["blocks"]:
        if block["language"] == "python":
            run_python(block["source"], page["name"], block["line"], names.__dict__)
        else:
            run_bash(block["source"], page["name"], block["line"], names.__dict__)


def _child(page: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True)
    os.chdir(folder)
    for entry in Path(page["clone"]).iterdir():
        Path(entry.name).symlink_to(entry)
    log = os.open(folder.with_suffix(".log"), os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    error = None
    try:
        run_page(page)
    except BaseException:
        error = traceback.format_exc()
    sys.stdout.flush()
    folder.with_suffix(".json").write_text(json.dumps({"error": error}))


def main() -> None:
    """Run the pages that come."""
    import datasets  # noqa: F401
    import peft  # noqa: F401
    import torch
    import transformers.models.qwen2_5_vl.modeling_qwen2_5_vl
    import transformers.models.qwen2_5_vl.processing_qwen2_5_vl  # noqa: F401
    import trl  # noqa: F401

    from hf_vlm_rl import AutoVLMPolicy  # noqa: F401
    from tests.hub.conftest import _only_this_machine

    torch.set_num_threads(1)
    socket.socket.connect = _only_this_machine(socket.socket.connect)
    for line in sys.stdin:
        page = json.loads(line)
        child = os.fork()
        if not child:
            try:
                _child(page, Path(page["folder"]))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        print("done", flush=True)


if __name__ == "__main__":
    main()
