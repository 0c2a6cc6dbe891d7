"""spa.Model: a loaded model and what can be asked of it."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union, cast, overload

import numpy as np

from . import _spa
from .policy import CachePolicy, registered
from .results import Comparison, Evaluation, Frame, Result

Message = Mapping[str, str]
# A question, a conversation, or token ids.
Prompt = Union[str, Sequence[Message], Sequence[int], np.ndarray]
Target = Union[str, Sequence[int], np.ndarray]
# A cache by name ("spa", "spa:rank=8"), or what makes a policy of your own: its class.
Cache = Union[str, Callable[..., CachePolicy]]
Path = Union[str, os.PathLike]


def _text(value: Any) -> str:
    """An option's value as the option table reads it."""
    if isinstance(value, (bool, np.bool_)):
        return "on" if value else "off"
    return str(value)


def _choices(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in options.items() if value is not None}


def _cache_of(
    choices: Mapping[str, str], cache: Cache | None, options: Mapping[str, Any] | None
) -> Cache | None:
    """The cache given, or none for exact decoding, which would ignore any other."""
    if choices.get("exact") != "on":
        return cache
    if cache not in (None, "none") or options:
        raise _spa.Error(f"exact decoding uses no cache: leave out {'cache_options' if options else 'cache'}")
    return "none"


def _is_batch(prompt: Any) -> bool:
    """Whether this is a list of prompts: not a text, not messages, not ids."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        return False
    return not prompt or not isinstance(prompt[0], (int, np.integer, Mapping))


def _count(name: str, value: Any) -> int:
    """A whole number, not negative."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 2**64:
        raise _spa.Error(f"{name} must be a whole number of at least 0, not {value!r}")
    return number


def _utf8(what: str, text: Any) -> str:
    if not isinstance(text, str):
        raise _spa.Error(f"{what} must be a string, not {type(text).__name__}")
    # Half a pair of surrogates is no character: U+FFFD, as invalid UTF-8 elsewhere.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _stops(given: str | Sequence[str]) -> list[str]:
    stops = [given] if isinstance(given, str) else list(given)
    if "" in stops:
        raise _spa.Error("a stop string must not be empty")
    return [_utf8("a stop string", stop) for stop in stops]


def _until(stops: list[str], pieces: Iterator[str]) -> Iterator[str]:
    """Pieces of a text, up to the first of the stop strings."""
    held = ""  # not given out yet: it may be the beginning of a stop string
    longest = max(map(len, stops), default=1)
    for piece in pieces:
        held += piece
        end = _first(stops, held)
        if end is not None:
            if end:
                yield held[:end]
            return
        sure = len(held) - longest + 1
        if sure > 0:
            yield held[:sure]
            held = held[sure:]
    if held:
        yield held


def _first(stops: list[str], text: str) -> int | None:
    """Where the first of the stop strings begins."""
    return min((at for at in map(text.find, stops) if at >= 0), default=None)


class Model:
    """A GGUF file or a Hugging Face folder; without a path, the embedded model.

    Threads of Python may share a model: it computes for one of them at a time, without the GIL.
    """

    def __init__(self, path: Path | None = None, *, threads: int = 0, kv: str = "auto"):
        self._model = _spa.Model(os.fspath(path or ""), _count("threads", threads), kv)
        self._path = path
        self._prepared: dict[Any, _spa.Cache] = {}

    name = property(lambda self: self._model.name, doc="the model's name")
    vocab_size = property(lambda self: self._model.vocab_size)
    num_layers = property(lambda self: self._model.num_layers)
    width = property(lambda self: self._model.width)
    context_length = property(lambda self: self._model.context_length)
    mask_id = property(lambda self: self._model.mask_id)
    stop_ids = property(lambda self: self._model.stop_ids)
    threads = property(lambda self: self._model.threads)
    default_cache = property(lambda self: self._model.default_cache)
    fingerprint = property(lambda self: self._model.fingerprint, doc="hash of the weights' file")

    def __repr__(self) -> str:
        where = "the model compiled in" if self._path is None else os.fspath(self._path)
        return (
            f"<spa.Model {self.name}: {self.num_layers} layers, width {self.width}, "
            f"{self.vocab_size} tokens, {self.threads} thread{'s'[: self.threads != 1]}, {where}>"
        )

    # ---- text and ids

    def tokenize(self, text: str, *, special: bool = False) -> np.ndarray:
        """The ids of a text. With `special`, names of control tokens in it become these tokens."""
        return np.array(self._model.tokenize(_utf8("what is tokenized", text), special), dtype=np.int32)

    def detokenize(self, ids: Sequence[int] | np.ndarray) -> str:
        return self._model.detokenize(_id_list(ids))

    def encode(self, prompt: Prompt, *, raw: bool = False) -> np.ndarray:
        """The ids of a prompt as `generate` sees it: a question or messages in the model's chat
        template; with `raw` a text as it is; ids as they are."""
        if isinstance(prompt, str):
            if not prompt:
                raise _spa.Error("the prompt is empty")
            prompt = _utf8("a prompt", prompt)
            messages = [] if raw else [("user", prompt)]
            return np.array(self._model.encode(messages, prompt), dtype=np.int32)
        if not isinstance(prompt, (Sequence, np.ndarray)):
            raise _spa.Error("a prompt must be a string, a list of messages or a list of token ids")
        if len(prompt) > 0 and isinstance(prompt[0], Mapping):
            messages = []
            for message in prompt:
                if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
                    raise _spa.Error("a message must be a dict with 'role' and 'content'")
                role, content = (_utf8(f"'{n}'", message[n]) for n in ("role", "content"))
                messages.append((role, content))
            return np.array(self._model.encode(messages, ""), dtype=np.int32)
        return np.array(_id_list(cast("Sequence[int]", prompt)), dtype=np.int32)

    def logits(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Logits of one dense pass, [tokens, vocabulary], float32, not shifted, not copied."""
        return self._model.logits(_id_list(ids))

    @overload
    def loglikelihood(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self,
        prompt: Prompt,
        target: Target,
        *,
        raw: bool = ...,
        estimator: str = ...,
        draws: int = ...,
        seed: int = ...,
        end_token: bool = ...,
        greedy: bool = ...,
    ) -> _spa.Likelihood: ...

    @overload
    def loglikelihood(
        self,
        prompt: Prompt | Sequence[Prompt],
        target: Sequence[Target],
        *,
        raw: bool = ...,
        estimator: str = ...,
        draws: int = ...,
        seed: int = ...,
        end_token: bool = ...,
        greedy: bool = ...,
    ) -> list[_spa.Likelihood]: ...

    def loglikelihood(
        self,
        prompt: Prompt | Sequence[Prompt],
        target: Target | Sequence[Target],
        *,
        raw: bool = False,
        estimator: str = "auto",
        draws: int = 32,
        seed: int = 0,
        end_token: bool = False,
        greedy: bool = False,
    ) -> _spa.Likelihood | list[_spa.Likelihood]:
        """How probable a target, a text or ids, is after a prompt: a lower bound of ln p, estimated
        as `estimator` says ("auto", "enumerate", "llada", "dream", "chain"). With `raw`, white
        space between two texts belongs to the target. A list of targets is scored after one prompt,
        or each after its own."""
        several = _is_batch(target)
        targets: list[Any] = list(target) if several else [target]
        one_each = several and _is_batch(prompt)
        prompts: list[Any] = list(prompt) if one_each else [prompt] * len(targets)
        if len(prompts) != len(targets):
            raise _spa.Error(f"{len(prompts)} prompts cannot have {len(targets)} targets")
        requests = [self._request(p, t, raw) for p, t in zip(prompts, targets)]
        scores = self._model.loglikelihoods(
            requests, estimator, _count("draws", draws), _count("seed", seed), end_token, greedy
        )
        return scores if several else scores[0]

    def _request(self, prompt: Prompt, target: Target, raw: bool) -> _spa.LikelihoodRequest:
        if raw and isinstance(prompt, str) and isinstance(target, str):
            return self._model.encode_continuation(_utf8("a prompt", prompt), _utf8("a target", target))
        ids = self.tokenize(target).tolist() if isinstance(target, str) else _id_list(target)
        return _spa.LikelihoodRequest(self.encode(prompt, raw=raw).tolist(), ids)

    # ---- generating

    @overload
    def generate(  # type: ignore[overload-overlap]  # as above
        self,
        prompt: Prompt,
        *,
        cache: Cache | None = ...,
        cache_options: Mapping[str, Any] | None = ...,
        raw: bool = ...,
        batch: int = ...,
        stop: str | Sequence[str] = ...,
        on_result: Callable[[int, Result], None] | None = ...,
        **options: Any,
    ) -> Result: ...

    @overload
    def generate(
        self,
        prompt: Sequence[Prompt],
        *,
        cache: Cache | None = ...,
        cache_options: Mapping[str, Any] | None = ...,
        raw: bool = ...,
        batch: int = ...,
        stop: str | Sequence[str] = ...,
        on_result: Callable[[int, Result], None] | None = ...,
        **options: Any,
    ) -> list[Result]: ...

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        cache: Cache | None = None,
        cache_options: Mapping[str, Any] | None = None,
        raw: bool = False,
        batch: int = 8,
        stop: str | Sequence[str] = (),
        on_result: Callable[[int, Result], None] | None = None,
        **options: Any,
    ) -> Result | list[Result]:
        """The answer to a prompt; to a list of prompts a list of answers, `batch` at a time. The
        text ends before the first of the `stop` strings. `on_result` gets each answer as soon as it
        is there, with its place in the list. The options are those of `spa options`, with _ for -."""
        how = (cache, cache_options, raw, batch, _stops(stop), on_result, options)
        return self._run(prompt, *how) if _is_batch(prompt) else self._run([prompt], *how)[0]

    def _run(
        self, prompts, cache, cache_options, raw, batch, stops, on_result, options
    ) -> list[Result]:
        if _count("batch", batch) < 1:
            raise _spa.Error("batch must be at least 1")
        waiting = [self.encode(prompt, raw=raw) for prompt in prompts]
        choices = _choices(options)
        prepared = self._prepare(_cache_of(choices, cache, cache_options), cache_options)
        runs = _spa.Runs(self._model)
        results: list[Any] = [None] * len(waiting)
        index: dict[int, int] = {}
        begun = 0
        while begun < len(waiting) or index:
            while begun < len(waiting) and len(index) < batch:
                index[runs.add(waiting[begun].tolist(), choices, prepared)] = begun
                begun += 1
            finished = set(runs.step())
            for key in list(index) if stops else finished:
                end = self._stop_in(runs.frame(key), stops) if stops else None
                if key in finished or end is not None:
                    taken = runs.take(key)
                    result = Result(self._texts(taken["ids"]), **taken)
                    if end is not None:
                        result.text, result.ended = result.text[:end], True
                    place = index.pop(key)
                    results[place] = result
                    if on_result is not None:
                        on_result(place, result)
        return results

    def _texts(self, ids: np.ndarray) -> list[str]:
        """The text of each token, for pictures."""
        if not self._model.has_tokenizer:
            return [str(i) for i in ids.tolist()]
        ends = set(self.stop_ids)
        return ["∎" if i in ends else self._model.detokenize([i]) for i in ids.tolist()]

    def _stop_in(self, frame: dict, stops: list[str]) -> int | None:
        """Where the settled text holds the first of the stop strings."""
        return _first(stops, self.detokenize(frame["ids"][: frame["length"]]))

    def steps(
        self,
        prompt: Prompt,
        *,
        cache: Cache | None = None,
        cache_options: Mapping[str, Any] | None = None,
        raw: bool = False,
        **options: Any,
    ) -> Iterator[Frame]:
        """The canvas after every step. Stop reading and the generation ends."""
        choices = _choices(options)
        prepared = self._prepare(_cache_of(choices, cache, cache_options), cache_options)
        runs = _spa.Runs(self._model)
        key = runs.add(self.encode(prompt, raw=raw).tolist(), choices, prepared)

        def frames() -> Iterator[Frame]:  # apart, so that a wrong option is told by the call itself
            finished: list[int] = []
            while not finished:
                finished = runs.step()
                yield Frame(self, **runs.frame(key))

        return frames()

    def stream(
        self,
        prompt: Prompt,
        *,
        cache: Cache | None = None,
        cache_options: Mapping[str, Any] | None = None,
        raw: bool = False,
        stop: str | Sequence[str] = (),
        **options: Any,
    ) -> Iterator[str]:
        """The answer's text in pieces, as it is settled from the left. Joined, they are the text
        that `generate` returns."""
        stops = _stops(stop)
        frames = self.steps(prompt, cache=cache, cache_options=cache_options, raw=raw, **options)
        return _until(stops, self._pieces(frames))

    def _pieces(self, frames: Iterator[Frame]) -> Iterator[str]:
        text, given = _spa.TextStream(self._model), 0
        for frame in frames:
            yield text.append(frame.ids[given : frame.length].tolist())
            given = frame.length
        yield text.finish()

    # ---- measuring

    def evaluate(
        self,
        data: Path | Sequence[Path],
        *,
        task: str = "bbh",
        cache: str | None = None,
        cache_options: Mapping[str, Any] | None = None,
        limit: int = 0,
        few_shot: int = 0,
        batch: int = 1,
        raw: bool = False,
        warm: bool = False,
        samples: Path | None = None,
        extract: str = "",
        question_field: str = "question",
        answer_field: str = "answer",
        progress: Callable[[int, int, int], None] | None = None,
        **options: Any,
    ) -> Evaluation:
        """Accuracy on the questions of files, as `spa eval` measures it. With `samples` an
        interrupted run resumes from that file."""
        files = [data] if isinstance(data, (str, os.PathLike)) else list(data)
        choices = _choices(options)
        result = self._model.evaluate(
            [os.fspath(file) for file in files],
            _spa.Task(task, extract, question_field, answer_field),
            self._spec(_cache_of(choices, cache, cache_options), cache_options),
            choices,
            _count("limit", limit),
            _count("few_shot", few_shot),
            _count("batch", batch),
            raw,
            warm,
            os.fspath(samples or ""),
            progress,
        )
        return Evaluation(result)

    def compare(
        self,
        questions: Sequence[str] | Path | None = None,
        *,
        caches: Sequence[str] | str | None = None,
        task: str = "bbh",
        limit: int = 20,
        parallel: float | None = None,
        batch: int = 1,
        extract: str = "",
        question_field: str = "question",
        answer_field: str = "answer",
        progress: Callable[[str, float], None] | None = None,
        **options: Any,
    ) -> Comparison:
        """Caches side by side on the same questions, as `spa compare` does: texts, a file of a
        task, or (None) a few the embedded model knows. `parallel` adds a row per cache with that
        threshold. Without `caches`: all built-in ones."""
        how = _spa.Task(task, extract, question_field, answer_field)
        if questions is None:
            asked = _spa.built_in_questions()
        elif isinstance(questions, (str, os.PathLike)):
            asked = _spa.read_questions(os.fspath(questions), how)
            asked = asked[: _count("limit", limit)] if limit else asked
        else:
            asked = [q if isinstance(q, _spa.Question) else _spa.Question(q) for q in questions]
        if isinstance(caches, str):
            caches = caches.split(",")
        rows = self._model.compare(
            asked,
            how,
            None if caches is None else [self._spec(cache, None) for cache in caches],
            _choices(options),
            parallel,
            _count("batch", batch),
            progress,
        )
        return Comparison(rows, self.name, len(asked))

    # ---- caches

    def _spec(self, cache: Cache | None, cache_options: Mapping[str, Any] | None) -> str:
        spec = self.default_cache if cache is None else cache
        if not isinstance(spec, str):
            raise _spa.Error("a cache must be given by name here: use spa.register to name your own")
        for name, value in _choices(cache_options or {}).items():
            spec += f":{name}={value}"
        return spec

    def _prepare(self, cache: Cache | None, cache_options: Mapping[str, Any] | None):
        if isinstance(cache, CachePolicy):
            name = type(cache).__name__
            raise _spa.Error(f"every sequence needs its own cache object: pass the class, cache={name}")
        if cache is None or isinstance(cache, str):
            spec = self._spec(cache, cache_options)
            key: Any = (spec, registered(spec.split(":")[0]))
            prepare = functools.partial(self._model.prepare, spec)
        elif issubclass(cache, CachePolicy) if isinstance(cache, type) else callable(cache):
            options = dict(cache_options or {})
            key = (cache, tuple(sorted(options.items())))
            chosen = ", ".join(f"{option}={value}" for option, value in options.items())
            name = getattr(cache, "__name__", "a cache of your own") + (f"({chosen})" if chosen else "")
            make = functools.partial(cache, **options)
            prepare = functools.partial(self._model.prepare_own, name, make)
        else:
            raise _spa.Error(f"a cache must be a name or a subclass of spa.CachePolicy, not {cache!r}")
        if key not in self._prepared:
            while len(self._prepared) >= 32:  # a loop over lambdas, a notebook's cell run again
                self._prepared.pop(next(iter(self._prepared)), None)
            self._prepared[key] = prepare()
        return self._prepared[key]


def _id_list(ids: Sequence[int] | np.ndarray) -> list[int]:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise _spa.Error("token ids must be a flat list of integers")
    if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        raise _spa.Error("a token id is outside the vocabulary")
    return array.tolist()
