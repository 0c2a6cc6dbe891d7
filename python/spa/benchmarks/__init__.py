"""The seven benchmarks of the SPA-Cache paper, with its settings, on local copies of the data.

    python -m spa.benchmarks run gsm8k --model llada.gguf --data FOLDER --cache spa

Prompts, filters and metrics are lm-eval's task definitions, unchanged; answers are the engine's;
programs that answer MBPP and HumanEval run in `spa.sandbox`.
"""

from .settings import BENCHMARKS, TABLES
from .suite import Run, score

__all__ = ["BENCHMARKS", "TABLES", "Run", "score"]
