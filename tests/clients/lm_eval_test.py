"""The server as lm-eval's local-completions model sees it, unchanged: multiple choice, likelihood and
generation tasks from local files. The scores are those of `spa eval --task choices`.

Starts nothing: SPA_URL is a server of the embedded model, SPA_KEY its key, SPA the program.
scripts/check_clients.sh sets them up.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

URL = os.environ["SPA_URL"]
os.environ["OPENAI_API_KEY"] = os.environ["SPA_KEY"]
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

QUESTIONS = [
    ("not ( True ) is", ["True", "False"], 1),
    ("True and False is", ["True", "False"], 1),
    ("True or False is", ["True", "False"], 0),
    ("not not True is", ["True", "False"], 0),
    ("( False or False ) is", ["True", "False"], 1),
    # Choices of several tokens, and of different lengths.
    ("Complete: < ( )", [">", "} >", ") ] >"], 0),
    ("Which is a fruit?", ["a fridge", "an apple", "a chair and a table"], 1),
    ("Größe?", ["groß", "klein"], 0),
]


class LmEval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "hf").mkdir()
        os.environ["HF_DATASETS_CACHE"] = str(cls.path / "hf")
        cls.write("questions.jsonl", "".join(
            json.dumps({"question": q, "choices": c, "answer": a}) + "\n" for q, c, a in QUESTIONS))
        cls.task("spa_choices", """
output_type: multiple_choice
doc_to_text: "{{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
""")
        cls.task("spa_loglikelihood", """
output_type: loglikelihood
doc_to_text: "{{question}}\\nAnswer:"
doc_to_target: " {{choices[answer]}}"
metric_list: [{metric: perplexity}, {metric: acc}]
""")
        cls.task("spa_generate", """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 2000, repetition_penalty: 1.0, top_p: 0.95}
metric_list: [{metric: exact_match}]
""")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def write(cls, name, text):
        (cls.path / name).write_text(text, encoding="utf-8")

    @classmethod
    def task(cls, name, text):
        cls.write(name + ".yaml", f"task: {name}\ndataset_path: json\n"
                  f"dataset_kwargs: {{data_files: {{test: {cls.path}/questions.jsonl}}}}\n"
                  f"test_split: test\nmetadata: {{version: 1}}\n{text}")

    def evaluate(self, task, **options):
        arguments = {"model": "minillada", "base_url": URL + "/v1/completions", "max_length": 700,
                     "num_concurrent": 1, "timeout": 600, "auth_token": os.environ["SPA_KEY"],
                     **options}
        return lm_eval.simple_evaluate(
            model="local-completions", model_args=arguments, tasks=[task], log_samples=True,
            task_manager=TaskManager(include_path=str(self.path), include_defaults=False),
            bootstrap_iters=0)

    def ours(self, *options):
        """What `spa eval` finds, and the log-likelihoods of every question."""
        records = self.path / "records.jsonl"
        records.unlink(missing_ok=True)
        out = subprocess.run(
            [os.environ["SPA"], "eval", "--task", "choices", "--raw", "--data",
             self.path / "questions.jsonl", "--samples", records, "--json", *options],
            check=True, capture_output=True, text=True).stdout
        lines = records.read_text(encoding="utf-8").splitlines()[1:]
        scores = [json.loads(json.loads(line)["text"])["log_probability"] for line in lines]
        return json.loads(out)["total"], scores

    def test_multiple_choice_gives_the_scores_of_spa_eval(self):
        total, scores = self.ours("--estimator", "chain")
        for options in ({}, {"batch_size": 4}, {"num_concurrent": 4},
                        {"tokenized_requests": False}):
            result = self.evaluate("spa_choices", **options)
            found = result["results"]["spa_choices"]
            self.assertEqual(found["acc,none"], total["accuracy"], options)
            self.assertEqual(found["acc_norm,none"], total["accuracy_norm"], options)
            samples = sorted(result["samples"]["spa_choices"], key=lambda s: s["doc_id"])
            for sample, expected in zip(samples, scores, strict=True):
                theirs = [float(r[0][0]) for r in sample["resps"]]
                for a, b in zip(theirs, expected, strict=True):
                    self.assertAlmostEqual(a, b, places=9)

    def test_loglikelihood_and_its_greedy_flag(self):
        _, scores = self.ours("--estimator", "chain")
        result = self.evaluate("spa_loglikelihood")
        samples = sorted(result["samples"]["spa_loglikelihood"], key=lambda s: s["doc_id"])
        greedy = 0
        for sample, expected, question in zip(samples, scores, QUESTIONS, strict=True):
            value, is_greedy = sample["resps"][0][0]
            self.assertAlmostEqual(float(value), expected[question[2]], places=9)
            greedy += str(is_greedy) == "True"
        self.assertEqual(result["results"]["spa_loglikelihood"]["acc,none"],
                         greedy / len(QUESTIONS))

    def test_more_tokens_than_the_context_are_clamped(self):
        result = self.evaluate("spa_generate", max_length=4096)
        self.assertEqual(len(result["samples"]["spa_generate"]), len(QUESTIONS))


if __name__ == "__main__":
    unittest.main()
