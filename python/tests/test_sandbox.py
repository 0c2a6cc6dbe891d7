"""Nothing leaves the sandbox, and every limit stops what it should. Where a program could fail for
another reason, the same program is also seen to work outside."""

import os
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from spa import sandbox

pytestmark = pytest.mark.slow  # needs bubblewrap and user namespaces


def run(program, **limits):
    return sandbox.run(textwrap.dedent(program), sandbox.Limits(**limits))


def outside(program):
    """Whether the program ends well without a sandbox. For harmless ones."""
    return (
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False).returncode
        == 0
    )


def processes_named(mark):
    """Processes of this machine with this word in their arguments."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    found += mark.encode() in file.read()
            except OSError:
                pass
    return found


def test_verdicts():
    assert run("assert sorted([2, 1]) == [1, 2]").outcome == "passed"
    wrong = run("assert sorted([2, 1]) == [2, 1]")
    assert wrong.outcome == "failed" and "AssertionError" in wrong.output
    assert run("def broken(:").outcome == "failed"
    assert run("import os; os.kill(os.getpid(), 11)").outcome == "crashed"
    assert run("print('hello')").output == "hello\n"


@pytest.mark.parametrize("leave", ["import sys; sys.exit(0)", "import os; os._exit(0)", "exit()"])
def test_leaving_early_is_not_passing(leave):
    assert run(f"{leave}\nassert False").outcome == "failed"


def test_a_program_that_looks_like_nothing():
    assert run("").outcome == "passed"
    assert run("\0").outcome == "failed"
    assert run("x = '\ud800'").outcome == "failed"


def test_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        program = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)"
        )
        assert outside(program)
        server.accept()[0].close()
        assert run(program).outcome == "failed"
        with pytest.raises(TimeoutError):
            server.accept()
    verdict = run("import socket; socket.getaddrinfo('localhost.invalid', 80)")
    assert verdict.outcome == "failed"
    # An abstract Unix socket needs no file, only the network's namespace.
    with socket.socket(socket.AF_UNIX) as server:
        name = f"spa-sandbox-{os.getpid()}"
        server.bind("\0" + name)
        server.listen()
        program = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')"
        assert outside(program)
        assert run(program).outcome == "failed"


def test_files_outside(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("kept")
    for folder in [tmp_path, *list(tmp_path.parents)[:-2]]:
        folder.chmod(0o755)  # so that only the sandbox keeps it from being read
    secret.chmod(0o666)
    assert outside(f"open({str(secret)!r}).read()")
    assert run(f"open({str(secret)!r}).read()").outcome == "failed"
    assert run(f"open({str(secret)!r}, 'w').write('lost')").outcome == "failed"
    assert secret.read_text() == "kept"
    for folder in (
        "/",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/dev",
        "/dev/shm",
        "/etc",
        "/home",
        "/proc/sys",
    ):
        verdict = run(f"open({folder + '/written'!r}, 'w')")
        assert verdict.outcome == "failed", folder
        assert not os.path.exists(folder + "/written")
    assert run("open('/etc/passwd')").outcome == "failed"


def test_the_scratch_folder_is_writable_and_its_own():
    assert run("open('here', 'w').write('x'); assert open('/tmp/here').read() == 'x'").passed
    assert run("import os; assert os.listdir('/tmp') == [], os.listdir('/tmp')").passed


def test_file_size_and_scratch_space():
    assert run("open('f', 'wb').write(b'x' * 1000)", file_size=1000).passed
    too_large = run("open('f', 'wb').write(b'x' * 100_000)", file_size=1000)
    assert too_large.outcome == "failed" and "File too large" in too_large.output
    many = "for i in range(40): open(str(i), 'wb').write(b'x' * 500_000)"
    assert run(many, scratch=40 << 20).passed
    assert "No space left" in run(many, scratch=4 << 20).output


def test_fork_bomb():
    started = time.monotonic()
    verdict = run(
        """
        import os
        while True:
            try:
                os.fork()
            except BlockingIOError:
                pass
        """,
        seconds=3,
    )
    assert verdict.outcome in ("timeout", "crashed", "failed")
    assert time.monotonic() - started < 10
    counted = run(
        """
        import os, time
        children = 0
        try:
            while children < 100:
                if os.fork() == 0:
                    time.sleep(60)
                children += 1
        except BlockingIOError:
            pass
        print(children)
        """,
        processes=8,
    )
    assert counted.passed and 0 < int(counted.output) < 8


def test_threads_count_as_processes():
    verdict = run(
        """
        import threading, time
        for i in range(100):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        """
    )
    assert verdict.outcome == "failed" and "can't start new thread" in verdict.output


def test_children_end_with_the_program():
    mark = f"left-behind-{os.getpid()}"
    verdict = run(
        f"""
        import os, sys
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                sleep = "import time; time.sleep(60)"
                os.execv(sys.executable, [sys.executable, "-c", sleep, {mark!r}])
        print("started")
        """,
        seconds=4,
    )
    assert "started" in verdict.output
    deadline = time.monotonic() + 5
    while processes_named(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_named(mark) == 0


def test_memory_hog():
    assert run("bytearray(100 << 20)").passed
    verdict = run("bytearray(3 << 30)")
    assert verdict.outcome == "failed" and "MemoryError" in verdict.output
    slowly = run("hog = []\nwhile True: hog.append(bytearray(1 << 20))", memory=200 << 20)
    assert slowly.outcome == "failed" and "MemoryError" in slowly.output


@pytest.mark.parametrize(
    "call",
    [
        "shmget(0, 1 << 20, 0o1600)",  # memory that a limit of address space does not count
        "msgget(0, 0o1600)",
        "memfd_create(b'm', 0)",
        "unshare(0x10000000)",
        "ptrace(0, 0, 0, 0)",
        "mount(0, 0, 0, 0, 0)",
    ],
)
def test_refused_system_calls(call):
    verdict = run(
        f"""
        import ctypes, errno
        library = ctypes.CDLL(None, use_errno=True)
        assert library.{call} == -1
        assert ctypes.get_errno() == errno.EPERM, ctypes.get_errno()
        """
    )
    assert verdict.passed, verdict.output


def test_endless_loop():
    for program in ("while True: pass", "import time; time.sleep(1000)"):
        verdict = run(program, seconds=1.5)
        assert verdict.outcome == "timeout" and verdict.seconds < 5
    ignoring = run(
        """
        import signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True: pass
        """,
        seconds=1.5,
    )
    assert ignoring.outcome == "timeout"


def test_processor_time():
    """Counted apart from the clock: an endless loop ends long before the wall limit, a program that
    waits does not use it up."""
    spinning = run("while True: pass", seconds=60, cpu_seconds=1)
    assert spinning.outcome == "timeout" and spinning.seconds < 50
    ignoring = run(
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        seconds=60,
        cpu_seconds=1,
    )
    assert ignoring.outcome == "crashed" and ignoring.seconds < 50
    raising = run(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
        """
    )
    assert raising.outcome == "failed"
    assert run("import time; time.sleep(2.5)", seconds=60, cpu_seconds=1).passed


def test_output_is_bounded():
    verdict = run("while True: print('x' * 1000)", seconds=2, output=5000)
    assert verdict.outcome == "timeout" and len(verdict.output) == 5000


def test_no_other_process_is_seen_or_hit():
    seen = run("import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))")
    assert seen.passed and len(seen.output.split(",")) <= 3
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        run(f"import os; os.kill({sleeper.pid}, 9)")
        run("import os; os.kill(-1, 9)")
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_neither_environment_nor_descriptors_enter(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    with open(tmp_path / "open", "w") as file:
        os.set_inheritable(file.fileno(), True)
        verdict = run(
            "import os; print(dict(os.environ)); print(sorted(os.listdir('/proc/self/fd')))"
        )
    assert "SECRET_OF_THE_HOST" not in verdict.output
    # Input, output, errors, the launcher's own, and the one that lists them.
    assert len(verdict.output.splitlines()[1].split(",")) <= 6


def test_many_at_once_keep_their_order():
    programs = [f"assert {n} % 3" for n in range(6)]
    assert [v.passed for v in sandbox.run_all(programs, workers=2)] == [
        bool(n % 3) for n in range(6)
    ]


@pytest.fixture
def fresh():
    sandbox._refusal.cache_clear()
    yield
    sandbox._refusal.cache_clear()


def test_without_bubblewrap_it_refuses(monkeypatch, fresh):
    monkeypatch.setattr(sandbox.shutil, "which", lambda *a, **k: None)
    with pytest.raises(sandbox.Unavailable, match="apt-get install bubblewrap"):
        run("print(1)")
    assert not sandbox.available()


def test_where_bubblewrap_cannot_isolate_it_refuses(monkeypatch, fresh, tmp_path):
    """A bubblewrap that only starts its program: the probe notices."""
    fake = tmp_path / "bwrap"
    fake.write_text(
        '#!/bin/sh\nwhile [ "$1" != "-I" ]; do last=$1; shift; done\nexec "$last" "$@"\n'
    )
    fake.chmod(0o755)
    for folder in [tmp_path, *list(tmp_path.parents)[:-2]]:
        folder.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(sandbox.Unavailable, match="cannot isolate"):
        run("print(1)")
