"""spa.cluster: every item is answered exactly once, whoever dies, as one process answers it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import spa
from spa import cluster

OPTIONS = {"gen_length": 32}


def sums(count):
    return [cluster.Item(f"q{n}", f"not ( {n % 2 == 0} or {n % 3 == 0} ) is") for n in range(count)]


def work(**changes):
    return cluster.Work("generate", cache="spa", options=OPTIONS, **changes)


def evaluation():
    task = {"task": "bbh", "extract": "", "question_field": "question", "answer_field": "answer"}
    return cluster.Work("evaluate", cache="spa", options=OPTIONS, task=task)


def without_times(records):
    timed = {"seconds", "ttft_seconds", "engine_seconds"}
    return {r["id"]: {k: v for k, v in r.items() if k not in timed} for r in records}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_records_survive_a_torn_line(tmp_path):
    path = tmp_path / "out.jsonl"
    with cluster.Records(path, {"a": 1}) as records:
        records.add([{"id": "x", "text": "1"}])
        records.add([{"id": "y", "text": "2"}])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "z", "te')
    with cluster.Records(path, {"a": 1}) as records:
        assert list(records.done) == ["x", "y"]
        records.add([{"id": "z", "text": "3"}])
    assert path.read_bytes() == whole + b'{"id": "z", "text": "3"}\n'


def test_records_of_other_work_are_refused(tmp_path):
    path = tmp_path / "out.jsonl"
    cluster.Records(path, {"a": 1}).close()
    with pytest.raises(spa.Error, match="other settings"):
        cluster.Records(path, {"a": 2})
    path.write_text("no JSON\n")
    with pytest.raises(spa.Error, match="line 1 is not JSON"):
        cluster.Records(path, {"a": 1})


def test_answers_of_two_models_do_not_mix(tmp_path):
    path = tmp_path / "out.jsonl"
    with cluster.Records(path, {}) as records:
        records.check_model("a")
        records.add([{"id": "x"}])
        records.check_model("a")
    with cluster.Records(path, {}) as records:
        assert list(records.done) == ["x"]
        with pytest.raises(spa.Error, match="a different model"):
            records.check_model("b")
    assert lines(path)[1:] == [{"model": "a"}, {"id": "x"}]


def test_one_writer(tmp_path):
    path = tmp_path / "out.jsonl"
    with cluster.Records(path, {}) as records:
        with pytest.raises(spa.Error, match="another run"):
            cluster.Records(path, {})
        records.add([{"id": "x"}])
        with pytest.raises(AssertionError, match="twice"):
            records.add([{"id": "x"}])
    assert len(lines(path)) == 2


def test_files_of_prompts(tmp_path):
    path = tmp_path / "p.jsonl"
    talk = [{"role": "user", "content": "hi"}]
    path.write_text(json.dumps({"prompt": "a"}) + "\n" + json.dumps({"id": 7, "messages": talk}))
    assert cluster.prompts(path) == [cluster.Item("0", "a"), cluster.Item("7", talk)]
    path.write_text('{"id": "1", "prompt": "a"}\n{"id": "1", "prompt": "b"}\n')
    with pytest.raises(spa.Error, match="appears twice"):
        cluster.prompts(path)
    path.write_text("[]\n")
    with pytest.raises(spa.Error, match="line 1: expected"):
        cluster.prompts(path)
    path.write_text("")
    with pytest.raises(spa.Error, match="is empty"):
        cluster.prompts(path)


def test_a_worker_answers_as_the_model_does(model):
    items = sums(3)
    mine = cluster.run_here(work(), items, threads=1, batch=2)
    theirs = model.generate([item.row for item in items], cache="spa", **OPTIONS)
    assert [record["text"] for record in mine] == [result.text for result in theirs]


def test_a_refused_item_does_not_take_others_with_it():
    items = [*sums(2), cluster.Item("empty", "")]
    records = cluster.run_here(work(), items, threads=1)
    assert ["error" in record for record in records] == [False, False, True]
    assert records[2]["error"] == "the prompt is empty"


def test_evaluating_portions_is_evaluating_the_file(model, tmp_path):
    rows = [{"input": f"not ( {n % 2 == 0} ) is", "target": str(n % 2 != 0)} for n in range(5)]
    path = tmp_path / "negations.json"
    path.write_text(json.dumps({"examples": rows}))
    whole = model.evaluate(path, cache="spa", samples=tmp_path / "whole", batch=5, **OPTIONS)
    mine = cluster.run_here(evaluation(), cluster.questions([path], "bbh"), threads=1, batch=2)
    assert without_times(mine) == without_times(lines(tmp_path / "whole")[1:])
    assert sum(record["correct"] for record in mine) == whole.total.correct


# ---- with Ray: three nodes on this machine, each with processes of its own


SMALL = {"num_cpus": 1, "object_store_memory": 80_000_000}


def complete(nodes):
    """Waits until three nodes are there and no other; all but the first may be killed."""
    import ray

    nodes.mortal += [nodes.add_node(**SMALL) for _ in range(2 - len(nodes.mortal))]
    deadline = time.monotonic() + 300
    while sum(node["Alive"] for node in ray.nodes()) != 3 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert sum(node["Alive"] for node in ray.nodes()) == 3


@pytest.fixture(scope="module")
def nodes():
    with pytest.MonkeyPatch.context() as patch:
        # A node starts many processes: on a busy machine they take their time.
        patch.setenv("RAY_worker_register_timeout_seconds", "600")
        patch.setenv("RAY_raylet_start_wait_time_s", "300")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
        patch.setenv("RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S", "60")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        import ray
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
        nodes.mortal = []
        ray.init(nodes.address, log_to_driver=False)
        complete(nodes)
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture
def prompt_file(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"id": i.id, "prompt": i.row}) + "\n" for i in sums(24)))
    return path


def once_and_the_same(out, items, how):
    """Every item has one record, the one that this process alone gives it."""
    settings, model, *written = lines(out)
    assert set(settings) == {"settings"} and set(model) == {"model"}
    assert sorted(record["id"] for record in written) == sorted(item.id for item in items)
    assert without_times(written) == without_times(cluster.run_here(how, items, threads=1))


@pytest.mark.slow
def test_a_killed_driver_goes_on_where_it_was(nodes, prompt_file, tmp_path):
    out, items = tmp_path / "out.jsonl", sums(24)
    command = [sys.executable, "-m", "spa.cluster", "generate", "--prompts", str(prompt_file)]
    command += ["--out", str(out), "--cache", "spa", "--option", "gen-length=32", "--batch", "2"]
    command += ["--actors", "2", "--cores", "1", "--address", nodes.address]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and driver.poll() is None:
        if out.exists() and out.read_bytes().count(b"\n") > 5:
            break
        time.sleep(0.005)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL, "it ended before it could be killed"
    before = out.read_bytes()
    before = before[: before.rindex(b"\n") + 1]
    finished = before.count(b"\n") - 2
    assert 3 < finished < len(items)

    again = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert again.returncode == 0, again.stderr
    assert f"{finished} of 24 are in" in again.stderr
    assert out.read_bytes().startswith(before)
    once_and_the_same(out, items, work())

    done = out.read_bytes()
    third = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert third.returncode == 0 and out.read_bytes() == done


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_one_line(nodes, tmp_path):
    bad = work(model=str(tmp_path / "missing.gguf"))
    with cluster.Records(tmp_path / "out.jsonl", {}) as records:
        with pytest.raises(spa.Error, match="missing.gguf") as caught:
            cluster.run(bad, sums(2), records, actors=1, cores=1)
    assert "\n" not in str(caught.value)


def ask(address: str, question: str, length: int = 32) -> str:
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": length}
    request = urllib.request.Request(
        address + "/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    answer = json.load(urllib.request.urlopen(request, timeout=120))
    return answer["choices"][0]["message"]["content"]


def servers() -> list[int]:
    """Processes `spa serve` of this test."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                command = open(f"/proc/{name}/cmdline").read().split("\0")
                if "serve" in command and "on-ray" in command:
                    found.append(int(name))
    return found


@pytest.mark.slow
def test_the_server_on_ray(nodes):
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address, question = f"http://127.0.0.1:{port}", "not ( True ) is"
    expected = spa.Model(threads=1).generate(question, gen_length=32).text
    handle = spa.serve_on_ray(
        program=os.environ["SPA_PROGRAM"],
        arguments=["--model-name", "on-ray"],
        max_replicas=2,
        cores=1,
        queue=3,
        port=port,
    )
    try:
        assert handle is not None and ask(address, question) == expected
        first = servers()
        assert len(first) == 1
        # While many wait, there are two.
        with ThreadPoolExecutor(8) as clients:
            busy = [clients.submit(ask, address, question, 512) for _ in range(8)]
            deadline = time.monotonic() + 240
            while len(servers()) < 2:
                assert time.monotonic() < deadline, "no second replica came"
                busy = [c if not c.done() else clients.submit(ask, address, question, 512) for c in busy]
                time.sleep(0.05)
            answers = {client.result() for client in busy}
        assert answers == {spa.Model(threads=1).generate(question, gen_length=512).text}
        first = servers()
        for server in first:
            os.kill(server, signal.SIGKILL)  # the replicas are found ill and replaced
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            if set(servers()) - set(first):
                with contextlib.suppress(urllib.error.HTTPError):
                    if ask(address, question) == expected:
                        break
            time.sleep(0.5)
        else:
            raise AssertionError("no other replica came")
    finally:
        serve.shutdown()
    deadline = time.monotonic() + 60
    while servers() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert servers() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["generate", "evaluate"])
def test_a_dying_node_loses_nothing(nodes, tmp_path, kind):
    if kind == "generate":
        how, items = work(), sums(60)
    else:
        rows = [{"input": item.row, "target": "True"} for item in sums(60)]
        (tmp_path / "negations.json").write_text(json.dumps({"examples": rows}))
        how, items = evaluation(), cluster.questions([tmp_path / "negations.json"], "bbh")
    complete(nodes)
    said, dying = [], [nodes.mortal.pop()]

    def progress(line):
        said.append(line)
        if dying and line.endswith("3 at work"):
            nodes.remove_node(dying.pop(), allow_graceful=False)
        elif dying:
            time.sleep(2)  # until all three have loaded the model

    path = tmp_path / "out.jsonl"
    with cluster.Records(path, cluster.settings(how, items)) as records:
        cluster.run(how, items, records, actors=3, cores=1, batch=2, progress=progress)
    assert not dying and any("lost, its 2 items" in line for line in said), said
    once_and_the_same(path, items, how)
