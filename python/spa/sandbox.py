"""Runs generated Python programs where they can do no harm.

Each program has a bubblewrap sandbox of its own: namespaces without network, a read-only file
system with the interpreter alone in it, a small scratch folder in memory, no capabilities, a filter
on system calls, and limits of time, memory, processes and file size. Everything ends with the
program. Without bubblewrap or user namespaces `run` refuses: no program runs unprotected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import platform
import secrets
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor


class Unavailable(RuntimeError):
    """The machine offers no isolation; the message is one line that says what to do."""


@dataclasses.dataclass(frozen=True)
class Limits:
    seconds: float = 10.0  # of the wall clock, the sandbox's start included
    cpu_seconds: int = 10  # of the processor, of each process
    memory: int = 1 << 30  # bytes of address space, of each process
    processes: int = 8  # threads count as well; bubblewrap's own process is one of them
    file_size: int = 1 << 20
    scratch: int = 16 << 20  # bytes of the scratch folder
    output: int = 1 << 16  # bytes kept of what the program prints


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a program ended: "passed" (to its last line), "failed" (an exception, or it left early),
    "timeout" (of the clock or the processor), or "crashed" (another signal)."""

    outcome: str
    output: str  # what it printed, the traceback included
    seconds: float

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


# Sets the limits, then runs the program as a module of its own. The token is written only after the
# last line: a program that calls exit does not pass.
_LAUNCHER = """
import json, os, resource, sys
job = json.load(sys.stdin)
verdict = os.dup(1)
os.set_inheritable(verdict, False)
os.dup2(2, 1)
for name, soft, hard in job["limits"]:
    resource.setrlimit(getattr(resource, name), (soft, hard))
sys.stdin = open(os.devnull)
os.dup2(sys.stdin.fileno(), 0)
exec(compile(job["program"], "program", "exec"), {"__name__": "__main__"})
os.write(verdict, job["token"].encode())
"""

# System calls that a sandboxed program has no use for: memory that no limit counts (System V
# segments and queues), namespaces and mounts, other processes, the kernel's programs and keys. By
# number, for each machine (asm/unistd_64.h, asm-generic/unistd.h).
_FORBIDDEN = {
    "x86_64": (
        0xC000003E,
        [
            (29, "shmget"),
            (64, "semget"),
            (68, "msgget"),
            (101, "ptrace"),
            (155, "pivot_root"),
            (161, "chroot"),
            (165, "mount"),
            (166, "umount2"),
            (240, "mq_open"),
            (246, "kexec_load"),
            (248, "add_key"),
            (249, "request_key"),
            (250, "keyctl"),
            (272, "unshare"),
            (298, "perf_event_open"),
            (308, "setns"),
            (310, "process_vm_readv"),
            (311, "process_vm_writev"),
            (319, "memfd_create"),
            (321, "bpf"),
            (323, "userfaultfd"),
            (425, "io_uring_setup"),
            (447, "memfd_secret"),
        ],
    ),
    "aarch64": (
        0xC00000B7,
        [
            (39, "umount2"),
            (40, "mount"),
            (41, "pivot_root"),
            (51, "chroot"),
            (97, "unshare"),
            (104, "kexec_load"),
            (117, "ptrace"),
            (180, "mq_open"),
            (186, "msgget"),
            (190, "semget"),
            (194, "shmget"),
            (217, "add_key"),
            (218, "request_key"),
            (219, "keyctl"),
            (241, "perf_event_open"),
            (268, "setns"),
            (270, "process_vm_readv"),
            (271, "process_vm_writev"),
            (279, "memfd_create"),
            (280, "bpf"),
            (282, "userfaultfd"),
            (425, "io_uring_setup"),
            (447, "memfd_secret"),
        ],
    ),
}


def _filter(machine: str) -> bytes:
    """A seccomp program: the forbidden calls fail with EPERM, calls of another machine kill."""
    load, jump_if_equal, jump_if_at_least, leave = 0x20, 0x15, 0x35, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050001, 0x80000000
    architecture, calls = _FORBIDDEN[machine]

    def line(code: int, then: int, otherwise: int, value: int) -> bytes:
        return struct.pack("<HBBI", code, then, otherwise, value)

    lines = [
        line(load, 0, 0, 4),  # the architecture
        line(jump_if_equal, 1, 0, architecture),
        line(leave, 0, 0, kill),
        line(load, 0, 0, 0),  # the call's number
        line(jump_if_at_least, 0, 1, 0x40000000),  # x32's numbers
        line(leave, 0, 0, kill),
    ]
    for number, _ in calls:
        lines += [line(jump_if_equal, 0, 1, number), line(leave, 0, 0, refuse)]
    return b"".join([*lines, line(leave, 0, 0, allow)])


def _interpreter() -> tuple[str, str]:
    """A Python that the sandbox's user may read, and the folder it lives in."""
    for path in (
        getattr(sys, "_base_executable", sys.executable),
        shutil.which("python3", path="/usr/bin"),
    ):
        if not path:
            continue
        real = pathlib.Path(path).resolve()
        prefix = real.parent.parent
        folders = [prefix, *prefix.parents]
        if os.geteuid() != 0 or all(folder.stat().st_mode & 0o5 == 0o5 for folder in folders):
            return str(real), str(prefix)
    raise Unavailable(
        "no sandbox: root's Python cannot be read by others; install python3 in /usr or run as a user"
    )


def _command(interpreter: str, prefix: str, limits: Limits, seccomp: int) -> list[str]:
    mounts = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64", "lib32"):
        folder = pathlib.Path("/", name)
        if folder.is_symlink():
            mounts += ["--symlink", os.readlink(folder), str(folder)]
        elif folder.is_dir():
            mounts += ["--ro-bind", str(folder), str(folder)]
    if not prefix.startswith("/usr"):
        mounts += ["--ro-bind", prefix, prefix]
    return [
        "bwrap",
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        *("--unshare-cgroup-try", "--disable-userns", "--uid", "65534", "--gid", "65534"),
        *("--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "sandbox"),
        *("--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp"),
        *("--setenv", "LANG", "C.UTF-8", "--setenv", "OMP_NUM_THREADS", "1"),
        *mounts,
        *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(limits.scratch), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"),
        *("--seccomp", str(seccomp)),
        *(interpreter, "-I", "-X", "utf8", "-c", _LAUNCHER),
    ]


def _start(program: str, limits: Limits) -> Verdict:
    interpreter, prefix = _interpreter()
    token = secrets.token_hex(16)
    job = {
        "program": program,
        "token": token,
        "limits": [
            # First SIGXCPU, which names the reason; a second later SIGKILL for a program that ignores it.
            ("RLIMIT_CPU", limits.cpu_seconds, limits.cpu_seconds + 1),
            *(
                (name, value, value)
                for name, value in [
                    ("RLIMIT_CORE", 0),
                    ("RLIMIT_AS", limits.memory),
                    ("RLIMIT_FSIZE", limits.file_size),
                    ("RLIMIT_NOFILE", 64),
                    ("RLIMIT_MEMLOCK", 0),
                    ("RLIMIT_MSGQUEUE", 0),
                    ("RLIMIT_NPROC", limits.processes),
                ]
            ),
        ],
    }
    started = time.monotonic()
    with tempfile.TemporaryFile() as seccomp:
        seccomp.write(_filter(platform.machine()))
        seccomp.seek(0)
        # Root's processes are not counted, so that root could not stop a fork bomb.
        nobody = 65534 if os.geteuid() == 0 else None
        process = subprocess.Popen(
            _command(interpreter, prefix, limits, seccomp.fileno()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[seccomp.fileno()],
            cwd="/",
            user=nobody,
            group=nobody,
            extra_groups=None if nobody is None else [],
        )
    assert process.stdin and process.stdout and process.stderr
    with contextlib.suppress(BrokenPipeError), process.stdin:  # broken: bubblewrap says why
        process.stdin.write(json.dumps(job).encode())
    kept = _read(
        process, {process.stdout: 64, process.stderr: limits.output}, started + limits.seconds
    )
    seconds = time.monotonic() - started
    said, output = kept[process.stdout], kept[process.stderr].decode("utf-8", "replace")
    process.stdout.close()
    process.stderr.close()
    code = process.returncode
    # bubblewrap reports a signal as 128 + its number.
    if (code == -9 and seconds >= limits.seconds) or code == 128 + signal.SIGXCPU:
        outcome = "timeout"
    elif said == token.encode():
        outcome = "passed"
    else:
        outcome = "crashed" if code < 0 or code > 128 else "failed"
    return Verdict(outcome, output, seconds)


def _read(process: subprocess.Popen, rooms: dict, deadline: float) -> dict:
    """What a process writes, so many bytes of each stream, until it ends or is killed in time."""
    kept = {stream: b"" for stream in rooms}
    with selectors.DefaultSelector() as selector:
        for stream in rooms:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                process.kill()  # all others go with it: they live in its namespace
                break
            for key, _ in selector.select(left):
                piece = os.read(key.fd, 1 << 16)
                if piece:
                    kept[key.fileobj] += piece[: rooms[key.fileobj] - len(kept[key.fileobj])]
                else:
                    selector.unregister(key.fileobj)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return kept


@functools.cache
def _refusal() -> str | None:
    """Why no sandbox can be made here, in one line; None if one can."""
    if platform.system() != "Linux" or platform.machine() not in _FORBIDDEN:
        return f"no sandbox: it needs Linux on {' or '.join(_FORBIDDEN)}"
    if not shutil.which("bwrap"):
        return "no sandbox: bubblewrap is missing. Debian: apt-get install bubblewrap"
    try:
        # The network is gone, the file system read-only, processes are counted.
        probe = _start(_PROBE, Limits(seconds=30))
    except Unavailable as error:
        return str(error)
    except OSError as error:
        return f"no sandbox: bubblewrap does not start: {error}"
    if not probe.passed:
        last = (probe.output.strip().splitlines() or [probe.outcome])[-1]
        return f"no sandbox: bubblewrap cannot isolate a program here: {last}"
    return None


_PROBE = """
import os, socket
assert [name for _, name in socket.if_nameindex()] == ["lo"], "the network is not isolated"
assert os.getuid() == 65534 and os.getpid() < 10, "users or processes are not isolated"
for folder in ("/", "/usr", "/dev", "/etc"):
    try:
        open(folder + "/written", "w")
    except OSError:
        continue
    raise AssertionError(folder + " can be written")
open("/tmp/written", "w").write("x")
children = []
try:
    while len(children) < 32:
        child = os.fork()
        if child == 0:
            import time
            time.sleep(60)
        children.append(child)
except BlockingIOError:
    pass
assert 0 < len(children) < 32, "processes are not counted (Linux 5.14 or newer does)"
for child in children:
    os.kill(child, 9)
"""


def available() -> bool:
    return _refusal() is None


def check() -> None:
    """Raises Unavailable where programs cannot be run safely."""
    refusal = _refusal()
    if refusal:
        raise Unavailable(refusal)


def run(program: str, limits: Limits = Limits()) -> Verdict:
    """Runs one program to its end or to a limit."""
    check()
    return _start(program, limits)


def run_all(programs: Iterable[str], limits: Limits = Limits(), workers: int = 0) -> list[Verdict]:
    """Runs programs side by side, one per core unless told otherwise."""
    check()
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        return list(pool.map(lambda program: _start(program, limits), programs))
