"""python -m spa.benchmarks: runs a benchmark or a table of the paper, or lists them."""

from __future__ import annotations

import argparse
import logging
import sys

from .. import sandbox
from .._spa import Error
from . import settings
from .suite import Run, score


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spa.benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data", required=True, help="folder with one folder per data set")
    shared.add_argument("--out", default="benchmarks", help="folder for the results")
    shared.add_argument("--limit", type=int, help="questions per task")
    shared.add_argument("--batch", type=int, help="answers at a time (the paper's: 16, Dream 4)")
    shared.add_argument("--threads", type=int, default=0)
    shared.add_argument("--shots", type=int, help="few-shot examples, overriding the paper's")
    shared.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a decoding option (see `spa options`), overriding the paper's",
    )
    run = commands.add_parser("run", parents=[shared], help="one benchmark with one cache")
    run.add_argument("benchmark", choices=settings.BENCHMARKS)
    run.add_argument("--model", help="file or folder (default: the embedded model)")
    run.add_argument("--settings", choices=settings.FAMILIES, help="whose settings (default: by model)")
    run.add_argument(
        "--cache", default="spa", help='"spa" is as the paper ran it, its options adjustable'
    )
    run.add_argument("--literal", action="store_true", help="take --cache as written")
    table = commands.add_parser("table", parents=[shared], help="a table of the paper")
    table.add_argument("table", choices=settings.TABLES)
    table.add_argument("--llada", metavar="MODEL", help="LLaDA-8B-Instruct or LLaDA-1.5")
    table.add_argument("--dream", metavar="MODEL", help="Dream-v0-Instruct-7B")
    commands.add_parser("list", help="the benchmarks, their settings and the tables")
    return parser


def _options(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise Error(f"--option is NAME=VALUE, not {pair}")
    return {name.replace("-", "_"): value for name, value in (pair.split("=", 1) for pair in pairs)}


def _family(args: argparse.Namespace) -> str:
    if args.settings:
        return args.settings
    name = (args.model or "").lower()
    for family in settings.FAMILIES:
        if family in name:
            return family
    raise Error("cannot tell the settings from the model: give --settings llada or --settings dream")


def _common(args: argparse.Namespace) -> dict:
    return {
        "data": args.data,
        "out": args.out,
        "limit": args.limit,
        "batch": args.batch,
        "threads": args.threads,
        "shots": args.shots,
    }


def _percent(score: dict) -> str:
    error = score["stderr"]
    return f"{100 * score['value']:.2f}" + ("" if error is None else f" ± {100 * error:.2f}")


def _print_run(run: Run, result: dict) -> None:
    print(f"{run.benchmark} ({result['settings']['task']}), cache {result['settings']['cache']}")
    for name, value in result["scores"].items():
        print(f"  {name}: {_percent(value)}")
    print(f"  questions: {sum(result['n'].values())}", end="")
    if result["tasks"] < result["tasks_in_all"]:
        print(f", {result['tasks']} of {result['tasks_in_all']} tasks at hand", end="")
    speed = result["speed"]
    if speed.get("seconds"):
        print(
            f"\n  {speed['tokens_per_second']:.1f} tokens/s, {speed['steps']} steps, "
            f"{100 * speed['rows_fraction']:.1f}% of rows",
            end="",
        )
    print(f"\n  {run.folder}/results.json")


def _table(args: argparse.Namespace) -> None:
    table = settings.TABLES[args.table]
    models = {family: getattr(args, family) for family in table.families}
    if not any(models.values()):
        raise Error(f"give the models: {' or '.join('--' + family for family in models)}")
    options = _options(args.option)
    print(f"{table.caption}\n")
    print("| benchmark | model | method | score | tokens/s | rows |\n|---|---|---|---|---|---|")
    failed = 0
    for benchmark in table.benchmarks:
        for family, model in models.items():
            for method in table.methods if model else ():
                run = Run(
                    benchmark,
                    family=family,
                    model=model,
                    cache=method.cache,
                    decode={**method.decode, **options},
                    **_common(args),
                )
                try:
                    result = score(run)
                except (Error, sandbox.Unavailable) as error:
                    print(f"{benchmark}, {family}, {method.name}: {error}", file=sys.stderr)
                    failed += 1
                    continue
                best = ", ".join(
                    f"{name} {_percent(value)}"
                    for name, value in result["scores"].items()
                    if "/" not in name
                )
                speed = result["speed"]
                print(
                    f"| {benchmark} | {family} | {method.name} | {best} "
                    f"| {speed.get('tokens_per_second', 0):.1f} "
                    f"| {100 * speed.get('rows_fraction', 0):.1f}% |",
                    flush=True,
                )
    if failed:
        raise Error(f"{failed} of the table's runs are missing, see above")


def _list() -> None:
    print("| benchmark | family | task | shots | length | block | chat | SPA-Cache |")
    print("|---|---|---|---|---|---|---|---|")
    for benchmark in settings.BENCHMARKS:
        for name, family in settings.FAMILIES.items():
            s = family.benchmarks[benchmark]
            cache = settings.paper_cache("spa", name, benchmark)
            print(
                f"| {benchmark} | {name} | {s.task} | {s.shots} | {s.gen_length} "
                f"| {s.block_length} | {'yes' if s.chat else 'no'} | `{cache}` |"
            )
    print("\n| table | what | models | benchmarks | methods |\n|---|---|---|---|---|")
    for name, table in settings.TABLES.items():
        print(
            f"| {name} | {table.caption} | {', '.join(table.families)} "
            f"| {len(table.benchmarks)} | {', '.join(m.name for m in table.methods)} |"
        )


def main() -> int:
    args = _arguments().parse_args()
    # lm-eval tells much about its own defaults.
    logging.disable(logging.WARNING)
    try:
        if args.command == "list":
            _list()
        elif args.command == "table":
            _table(args)
        else:
            run = Run(
                args.benchmark,
                family=_family(args),
                model=args.model,
                cache=args.cache,
                literal=args.literal,
                decode=_options(args.option),
                **_common(args),
            )
            _print_run(run, score(run))
    except (Error, sandbox.Unavailable) as error:
        print(f"spa.benchmarks: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
