"""The data of one run: which problems a step asks, as token ids, and what responses are worth."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.batch import sft_batch
from trainer.config import Config
from trainer.model_dir import EOS_ID, build_tokenizer
from trainer.tasks import ALPHABET, make_task, problem_rng, score
from trainer.types import Generated, Group, Problem, Sample, TrainBatch


class Prompts:
    """Problems are a function of (seed, stage, step) alone, so a resumed run asks the same ones."""

    def __init__(self, config: Config) -> None:
        self._seed = config.seed
        self._task = make_task(config.data)
        self._tokenizer = build_tokenizer(ALPHABET)
        self._prompts = config.rollout.rollout_batch_size
        self._samples = config.rollout.n_samples_per_prompt
        self._sft_batch_size = config.algorithm.sft_batch_size

    def problems(self, step: int) -> list[Problem]:
        """The problems of one GRPO step."""
        return self._draw("grpo", step, self._prompts)

    def requests(self, problems: Sequence[Problem]) -> list[tuple[int, ...]]:
        """The prompts to generate for: each problem n_samples_per_prompt times, adjacent."""
        prompts = [self._encode(problem.prompt) for problem in problems]
        return [prompt for prompt in prompts for _ in range(self._samples)]

    def grade(self, problems: Sequence[Problem], responses: Sequence[Generated]) -> list[Group]:
        """One group per problem, from the responses to `requests(problems)`."""
        n = self._samples
        return [
            Group(tuple(self._sample(problem, r) for r in responses[i * n : (i + 1) * n]))
            for i, problem in enumerate(problems)
        ]

    def supervised(self, step: int) -> TrainBatch:
        """Problems with their right answers, each ended by <eos>."""
        problems = self._draw("sft", step, self._sft_batch_size)
        return sft_batch(
            [self._encode(problem.prompt) for problem in problems],
            [(*self._encode(problem.answer), EOS_ID) for problem in problems],
        )

    def _draw(self, stage: str, step: int, count: int) -> list[Problem]:
        rng = problem_rng(self._seed, stage, step)
        return [self._task.draw(rng) for _ in range(count)]

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text).ids)

    def _sample(self, problem: Problem, response: Generated) -> Sample:
        """Graded; a response that does not end with <eos> is not right, whatever its characters."""
        ended = response.ids[-1] == EOS_ID
        text = self._text(response.ids)
        reward = score(problem.answer, text)
        return Sample(
            prompt_ids=self._encode(problem.prompt),
            response_ids=response.ids,
            rollout_logprobs=response.logprobs,
            reward=reward,
            correct=ended and reward == 1.0,
        )

    def _text(self, ids: Sequence[int]) -> str:
        """One character per token but <eos>; any other id becomes a blank, which no answer has."""
        tokens = [self._tokenizer.id_to_token(i) for i in ids if i != EOS_ID]
        return "".join(token if token and token in ALPHABET else " " for token in tokens)
