"""EleutherAI's lm-evaluation-harness on this engine. The harness has no entry points for models, so
`python -m spa.lm_eval` (or `spa-lm-eval`) is its own command line with the model `spa` added:

    python -m spa.lm_eval --model spa --model_args pretrained=model.gguf,cache=spa,threshold=0.9 \\
        --tasks gsm8k --batch_size 4 --apply_chat_template --output_path results

Every decoding option is a model argument; `estimator`, `draws`, `end_token` and `greedy` are those of
spa.Model.loglikelihood. Throughput and rows are in the results' config.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from typing import Any

import lm_eval.models  # noqa: F401  ours beside the harness's own, which it adds only to an empty list
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from . import options
from .model import Model
from .results import Result

logger = logging.getLogger(__name__)

# A conversation as the harness carries it, in a string: the engine puts the tokens of its chat
# template in place of names that a prompt could imitate.
_CHAT, _END = "<spa-messages>", "</spa-messages>"
# What the harness says about lengths, ends and devices; the rest must be options.
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens")
_ENDS = ("until", "stop")
_TOGETHER = 64  # requests scored in one call; the choices of a question share their passes


@register_model("spa")
class SpaLM(LM):
    def __init__(
        self,
        pretrained: str | None = None,
        threads: int = 0,
        kv: str = "auto",
        cache: str | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        max_gen_toks: int = 256,
        estimator: str = "auto",
        draws: int = 32,
        end_token: bool = False,
        greedy: bool = True,
        **decode: Any,
    ):
        super().__init__()
        self.model = Model(pretrained, threads=int(threads), kv=kv)
        self.cache = cache
        self.batch = 8 if batch_size == "auto" else int(batch_size)
        self.max_gen_toks = int(max_gen_toks)
        self.estimator, self.draws = estimator, int(draws)
        self.end_token, self.greedy = bool(end_token), bool(greedy)
        self.decode = decode
        self.totals: dict[str, float] = defaultdict(float)
        self._known = {option["name"].replace("-", "_") for option in options()["decode"]}
        self._warned: set[str] = set()
        self.model._model.decode_options({k: str(v) for k, v in decode.items()})  # fails early

    # ---- prompts

    def apply_chat_template(self, chat_history, add_generation_prompt: bool = True) -> str:
        messages = [{"role": m["role"], "content": m["content"]} for m in chat_history]
        prefill = "" if add_generation_prompt else messages.pop()["content"]
        return _CHAT + json.dumps(messages, ensure_ascii=False) + _END + prefill

    @property
    def tokenizer_name(self) -> str:
        return f"spa-{self.model.fingerprint}"

    def chat_template(self, chat_template: bool | str = False) -> str:
        return "the model's own"

    def _ids(self, context: str) -> list[int]:
        if context.startswith(_CHAT):
            messages, _, prefill = context[len(_CHAT) :].rpartition(_END)
            ids = self.model.encode(json.loads(messages)).tolist()
            return ids + (self.model.tokenize(prefill).tolist() if prefill else [])
        return self.model.encode(context, raw=True).tolist()

    # ---- generating

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        groups: dict[str, list[int]] = defaultdict(list)
        prompts, answers = [], [""] * len(requests)
        for index, request in enumerate(requests):
            context, given = request.args
            prompts.append(self._ids(context))
            chosen, stops = self._options(dict(given), len(prompts[-1]))
            groups[json.dumps([chosen, stops], sort_keys=True)].append(index)
        with tqdm(total=len(requests), desc="answers", disable=disable_tqdm) as bar:
            for key, members in groups.items():
                chosen, stops = json.loads(key)

                def keep(place: int, result: Result, members: list[int] = members) -> None:
                    index = members[place]
                    answers[index] = result.text
                    self._count(result)
                    self.cache_hook.add_partial("generate_until", requests[index].args, result.text)
                    bar.update()

                self.model.generate(
                    [prompts[index] for index in members],
                    cache=self.cache,
                    batch=self.batch,
                    stop=stops,
                    on_result=keep,
                    **chosen,
                )
        return answers

    def _options(self, given: dict[str, Any], prompt_tokens: int) -> tuple[dict, list[str]]:
        """Decoding options and stop strings of a request: the task's, then the model arguments."""
        stops: list[str] = []
        for name in _ENDS:
            value = given.pop(name, None) or []
            stops += [value] if isinstance(value, str) else list(value)
        length = self.max_gen_toks
        for name in _LENGTHS:
            length = int(given.pop(name, None) or length)
        sampled = given.pop("do_sample", None)
        chosen = {"gen_length": length}
        if not sampled or not given.get("temperature"):
            for name in ("temperature", "top_p", "top_k"):  # without a meaning when greedy
                given.pop(name, None)
        for name, value in given.items():
            if name not in self._known:
                self._warn(f"the task asks for {name}={value}, which this engine does not have")
            elif value is not None:
                chosen[name] = value
        chosen.update(self.decode)
        room = self.model.context_length - prompt_tokens
        if int(chosen["gen_length"]) > room >= 32:
            self._warn(f"answers of {chosen['gen_length']} tokens are cut to the context's room")
            chosen["gen_length"] = room // 32 * 32
        return chosen, [stop for stop in dict.fromkeys(stops) if stop]

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            logger.warning(text)
            self._warned.add(text)

    def _count(self, result) -> None:
        for name in ("generated_tokens", "steps", "seconds", "rows_computed", "rows_total"):
            self.totals[name] += getattr(result, name)
        self.totals["answers"] += 1

    # ---- likelihoods

    def loglikelihood(self, requests, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        answers: list[tuple[float, bool]] = []
        starts = range(0, len(requests), _TOGETHER)
        for start in tqdm(starts, desc=f"likelihoods, {_TOGETHER} each", disable=disable_tqdm):
            some = requests[start : start + _TOGETHER]
            scores = self._score([self._pair(*request.args) for request in some], self.greedy)
            for request, score in zip(some, scores):
                answers.append((score.log_probability, bool(score.is_greedy)))
                self.cache_hook.add_partial("loglikelihood", request.args, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        """The bound of a whole text, in windows of the context's length, each after a token."""
        answers: list[float] = []
        for request in tqdm(requests, desc="texts", disable=disable_tqdm):
            windows = get_rolling_token_windows(
                token_list=self.model.tokenize(request.args[0]).tolist(),
                prefix_token=self._prefix(),
                max_seq_len=self.model.context_length - 1 - self.end_token,
                context_len=1,
            )
            scores = self._score([make_disjoint_window(window) for window in windows], False)
            answers.append(sum(score.log_probability for score in scores))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, answers[-1])
        return answers

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The ids of a context and of what follows it; the border is the engine's."""
        chat: list[int] = []
        if context.startswith(_CHAT):
            messages, _, context = context[len(_CHAT) :].rpartition(_END)
            chat = self.model.encode(json.loads(messages)).tolist()
        if context.strip():
            cut = self.model._model.encode_continuation(context, continuation)
            return chat + cut.prompt, cut.target
        return chat or [self._prefix()], self.model.tokenize(context + continuation).tolist()

    def _prefix(self) -> int:
        """The token before a text without a context, as in the harness's own models."""
        return self.model.stop_ids[0]

    def _score(self, pairs: list[tuple[list[int], list[int]]], greedy: bool):
        prompts = []
        for prompt, target in pairs:
            room = self.model.context_length - len(target) - self.end_token
            if len(prompt) > room > 0:
                self._warn("prompts that are longer than the context lose their beginning")
                prompt = prompt[-room:]
            prompts.append(prompt)
        scores = self.model.loglikelihood(
            prompts,
            [target for _, target in pairs],
            estimator=self.estimator,
            draws=self.draws,
            seed=int(self.decode.get("seed", 0)),
            end_token=self.end_token,
            greedy=greedy,
        )
        self.totals["likelihoods"] += len(scores)
        self.totals["noise"] += sum(score.standard_error for score in scores)
        return scores

    # ---- results

    def get_model_info(self) -> dict[str, Any]:
        t = self.totals
        return {
            "spa": {
                "model": self.model.name,
                "fingerprint": self.model.fingerprint,
                "cache": self.cache or self.model.default_cache,
                "decode": {name: str(value) for name, value in self.decode.items()},
                "answers": int(t["answers"]),
                "generated_tokens": int(t["generated_tokens"]),
                "seconds": t["seconds"],
                "tokens_per_second": t["generated_tokens"] / t["seconds"] if t["seconds"] else 0,
                "steps": int(t["steps"]),
                "rows_fraction": t["rows_computed"] / t["rows_total"] if t["rows_total"] else 0,
                "likelihoods": int(t["likelihoods"]),
                "estimator": self.estimator,
                "draws": self.draws,
                "log_probability_stderr": t["noise"] / t["likelihoods"] if t["likelihoods"] else 0,
            }
        }


def main() -> None:
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
