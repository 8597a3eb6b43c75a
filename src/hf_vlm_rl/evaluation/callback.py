"""`EvaluationCallback`: `evaluate` before, while and after a trainer trains."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import TrainerCallback

from ..policy.policy import VLMPolicy
from .comparison import Comparison, compare
from .measurement import Evaluation
from .ranks import Ranks
from .result import EvaluationResult
from .run import check_dataset, evaluate

logger = logging.getLogger(__name__)


class EvaluationCallback(TrainerCallback):
    """Evaluates a policy while a trainer trains it.

    ```python
    evaluation = EvaluationCallback(held_out, [iou_reward], every_steps=100)
    evaluation.log_to(trainer)
    trainer.train()
    print(evaluation.comparison)
    ```

    Each evaluation puts `eval/<reward>/mean`, `/low`, `/high` and `/pass@k` into the trainer's
    `log_history` and writes the result (JSON) and its rows with their images (HTML) to
    `<output_dir>/evaluation/`. After `log_to`, what `report_to` names gets the same numbers.

    Every process of a distributed run takes part. Training is as without the callback.

    Args:
        dataset: Rows in TRL's columns, a list or a `datasets.Dataset`; few, as completions are generated for
            all of them each time.
        reward_funcs: TRL reward functions.
        every_steps: Also evaluate after each so many steps.
        before: Evaluate before the first step.
        after: Evaluate after the last.
        name: The dataset's name on the adapter's card.
        **options: For `evaluate`: `batch_size`, `max_new_tokens`, `keep_rows`, ... There is a progress bar
            unless the trainer's `disable_tqdm` or `progress=False` says otherwise.

    Attributes:
        results: Step to result, of this run and, after resuming, of the interrupted one.
    """

    def __init__(
        self,
        dataset: Iterable[Mapping[str, Any]],
        reward_funcs: Callable | Sequence[Callable],
        *,
        every_steps: int | None = None,
        before: bool = True,
        after: bool = True,
        name: str = "held-out rows",
        **options: Any,
    ):
        if every_steps is not None and every_steps < 1:
            raise ValueError(f"Got {every_steps=}. Expected a number of steps, or None.")
        check_dataset(dataset)
        if iter(dataset) is dataset:
            raise ValueError("Got an iterator. Expected a dataset that can be read more than once.")
        self.dataset, self.reward_funcs, self.options = dataset, reward_funcs, options
        self.name = name
        self.every_steps, self.at_begin, self.at_end = every_steps, before, after
        self.results: dict[int, EvaluationResult] = {}
        self._handler: Any = None
        self._outdated = False  # the last result is not of the weights that training ended with

    def log_to(self, trainer: Any) -> None:
        """Evaluate during `trainer.train()` and log through the trainer's reporters.

        Args:
            trainer: A built trainer; the callback is added, unless it was among its `callbacks`.
        """
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        self._handler = trainer.callback_handler

    @property
    def comparison(self) -> Comparison:
        """The first result and the last.

        Raises:
            ValueError: If there are no two.
        """
        if len(self.results) < 2:
            raise ValueError(
                f"Got results of the steps {sorted(self.results)}. Expected two or more: before=True and "
                "after=True, and a finished run."
            )
        return compare(self.results[min(self.results)], self.results[max(self.results)])

    def evaluations(self, step: int) -> list[Evaluation]:
        """What the card of an adapter shows that was trained to a step; `save_adapter` asks for it.

        Args:
            step: `trainer.state.global_step`.

        Returns:
            One for each reward, with the value before training if that was measured; none, and a warning, if
            the weights of that step were not evaluated.

        Raises:
            ValueError: If the rows before training were others.
        """
        if not self.results:
            return []
        if step not in self.results or self._outdated:
            logger.warning(
                "EvaluationCallback: the model of step %d was not evaluated (steps %s were), so its card has "
                "no results of %r. Set after=True, or pass evaluations=[...] with the card.",
                step,
                sorted(self.results),
                self.name,
            )
            return []
        if step and 0 in self.results:
            return compare(self.results[0], self.results[step]).evaluations(self.name)
        return self.results[step].evaluations(self.name)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Evaluate, or after resuming read what was evaluated until then."""
        if self._handler is None and args.report_to:
            logger.warning(
                "EvaluationCallback: %s will not get the evaluations, as callbacks do not know their "
                "trainer. Call log_to(trainer) before trainer.train().",
                ", ".join(args.report_to),
            )
        self.results, self._outdated = {}, False
        if state.global_step:
            # Machines may have folders of their own, and only the first process writes results.
            together = Ranks(policy_in(model), args.world_size > 1)
            self.results = together.on_first(lambda: _stored(self._folder(args), state.global_step))
        elif self.at_begin:
            self._evaluate(args, state, control, model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Evaluate if it is time."""
        if self.every_steps and state.global_step % self.every_steps == 0:
            self._evaluate(args, state, control, model)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Evaluate, unless it was done after the last step and the model is still that one."""
        best = args.load_best_model_at_end  # the trainer has loaded it by now
        if self.at_end and (best or state.global_step not in self.results):
            self._evaluate(args, state, control, model)
        self._outdated = best and not self.at_end

    def _evaluate(self, args: Any, state: Any, control: Any, model: Any) -> None:
        result = evaluate(
            policy_in(model),
            self.dataset,
            self.reward_funcs,
            distributed=args.world_size > 1,
            **{"progress": not args.disable_tqdm} | self.options,
        )
        step = state.global_step
        self.results[step] = result
        if state.is_world_process_zero:
            folder = self._folder(args)
            folder.mkdir(parents=True, exist_ok=True)
            result.save(folder / f"step-{step:06d}.json")
            result.save_html(folder / f"step-{step:06d}.html")
        self._log(_metrics(result), args, state, control)

    def _log(self, numbers: dict[str, float], args: Any, state: Any, control: Any) -> None:
        epoch = {} if state.epoch is None else {"epoch": state.epoch}
        entry = {f"eval/{name}": value for name, value in numbers.items()}
        state.log_history.append(entry | epoch | {"step": state.global_step})
        if self._handler is None:
            return
        # Reporters turn eval_ into eval/. The trainer's own log of this step still comes: `on_log` would call
        # it off.
        should_log = control.should_log
        logs = {f"eval_{name}": value for name, value in numbers.items()} | epoch
        self._handler.on_log(args, state, control, logs)
        control.should_log = should_log

    def _folder(self, args: Any) -> Path:
        return Path(args.output_dir) / "evaluation"


def _stored(folder: Path, last: int) -> dict[int, EvaluationResult]:
    """The results that an interrupted run wrote up to the step `last`, by step."""
    paths = {int(path.stem[5:]): path for path in folder.glob("step-*.json")}
    return {step: EvaluationResult.load(path) for step, path in sorted(paths.items()) if step <= last}


def policy_in(model: Any) -> Any:
    """The policy, or the `PeftModel` around it, in what a trainer trains.

    Raises:
        ValueError: If there is none.
    """
    for module in model.modules():  # a wrapper comes before what it wraps
        base = module.get_base_model() if isinstance(module, PeftModel) else module
        if isinstance(base, VLMPolicy):
            return module
    raise ValueError(f"Got a trainer of a {type(model).__name__}. Expected one of an AutoVLMPolicy.")


def _metrics(result: EvaluationResult) -> dict[str, float]:
    """The numbers of a result by name: `<reward>/mean`, `<reward>/low`, ..., `clipped`, `mean_length`."""
    numbers: dict[str, float] = {}
    for name, scores in result.rewards.items():
        if not scores.mean.n:
            continue
        numbers[f"{name}/mean"] = scores.mean.value
        if scores.mean.interval is not None:
            numbers[f"{name}/low"], numbers[f"{name}/high"] = scores.mean.interval
        numbers |= {f"{name}/pass@{k}": share.value for k, share in scores.pass_at.items() if share.n}
    lengths = {"clipped": result.clipped, "mean_length": result.mean_length}
    return numbers | {name: value for name, value in lengths.items() if value is not None}
