"""The folder of the cache: who may use it at once, what is damaged, and the command."""

from __future__ import annotations

import contextvars
import json
import os
import signal
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from filelock import Timeout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import torchtrt
from plugins.compiler.tests.cached import BASE, INPUTS, VARYING, compiled, hits
from tests.support.processes import run_python
from torchtrt.errors import BuildError, CacheWarning, SettingsError
from torchtrt_cli import main
from torchtrt_compiler.cache.folder import CacheFolder
from torchtrt_testing.faults import watched_tensorrt


def test_settings_and_environment_choose_the_folder(tmp_path, monkeypatch):
    """The setting comes first; without both nothing is kept."""
    default, named, given_folder = tmp_path / "default", tmp_path / "named", tmp_path / "given"
    monkeypatch.setenv("XDG_CACHE_HOME", str(default))

    def used(setting, variable):
        if variable is None:
            monkeypatch.delenv("TORCHTRT_CACHE", raising=False)
        else:
            monkeypatch.setenv("TORCHTRT_CACHE", variable)
        torchtrt.compile(BASE, [VARYING], min_block_size=1, engine_cache=setting)
        folders = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.engine")}
        for path in tmp_path.rglob("*.engine"):
            path.unlink()
        return folders

    assert set() == used(None, None)
    assert set() == used(None, "0") == used(None, "off")
    assert set() == used(False, str(named))
    assert {"default"} == used(None, "1") == used(None, "True")
    assert {"default"} == used(True, None) == used(True, "true")
    assert {"named"} == used(None, str(named))
    assert {"named"} == used(True, str(named))
    assert {"given"} == used(given_folder, str(named))
    with pytest.raises(SettingsError, match="engine_cache=3"):
        torchtrt.compile(BASE, [VARYING], engine_cache=3)


def test_processes_that_compile_one_model_divide_its_engines(tmp_path):
    """Each engine is built once, and none waits for an engine while another one needs to be built."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6))).eval()
    builds = []
    both = threading.Barrier(2)
    limit = 4 * (8 * 8 + 8)

    def compile_in_a_thread(context):
        settings = {"max_engine_bytes": limit}
        return context.run(compiled, model, tmp_path, [torch.ones(2, 8)], **settings)

    with watched_tensorrt() as tensorrt, ThreadPoolExecutor(2) as executor:

        class Builder(tensorrt.module.Builder):
            def __init__(self, logger):
                super().__init__(logger)
                builds.append(threading.get_ident())
                if len(builds) <= 2:
                    both.wait(timeout=60)  # in the first build of each

        tensorrt.module.Builder = Builder
        contexts = [contextvars.copy_context() for _ in range(2)]
        first, second = executor.map(compile_in_a_thread, contexts)
    assert len(builds) == 6
    assert len(set(builds)) == 2
    built = [not (a and b) for a, b in zip(hits(first), hits(second), strict=True)]
    assert built == [True] * 6
    x = torch.randn(2, 8)
    for module in (first, second):
        torch.testing.assert_close(module(x), model(x))


def test_the_least_recently_used_engines_go_first(tmp_path, monkeypatch):
    """Beyond the limit; using an engine makes it young."""
    models = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(4)]
    for age, model in enumerate(models[:3]):
        compiled(model, tmp_path, [VARYING])
        for entry in CacheFolder(tmp_path).entries():
            if entry.used > time.time() - 1000:
                os.utime(tmp_path / "engines" / f"{entry.key}.engine", (0, 1000 + age))
    size = CacheFolder(tmp_path).entries()[0].bytes
    assert [True] == hits(compiled(models[0], tmp_path, [VARYING]))
    monkeypatch.setenv("TORCHTRT_CACHE_SIZE", f"{3.5 * size / 1000} kB")
    compiled(models[3], tmp_path, [VARYING])

    assert [[True], [True]] == [
        hits(compiled(model, tmp_path, [VARYING])) for model in (models[0], models[3])
    ]
    assert [False] == hits(compiled(models[1], tmp_path, [VARYING]))
    for text in ("much", "-1", "10 miles"):
        monkeypatch.setenv("TORCHTRT_CACHE_SIZE", text)
        with pytest.raises(SettingsError, match="TORCHTRT_CACHE_SIZE"):
            compiled(BASE, tmp_path, [VARYING])


@settings(
    max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(fraction=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_file_is_built_again(tmp_path, fraction, bit, cut):
    """Whatever byte has changed, and wherever the file ends."""
    compiled(BASE, tmp_path, [VARYING])
    (path,) = tmp_path.glob("engines/*.engine")
    data = bytearray(path.read_bytes())
    at = int(fraction * len(data))
    if cut:
        del data[at:]
    else:
        data[at] ^= 1 << bit
    path.write_bytes(data)
    x = torch.rand(2, 4)

    again = compiled(BASE, tmp_path, [VARYING])
    assert [False] == hits(again)
    torch.testing.assert_close(again(x), BASE(x))
    assert [True] == hits(compiled(BASE, tmp_path, [VARYING]))


COMPILE = """
import sys, torch, torchtrt
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)).eval()
compiled = torchtrt.compile(model, [torch.rand(2, 4)], min_block_size=1, engine_cache=sys.argv[1])
torch.testing.assert_close(compiled(torch.ones(2, 4)), model(torch.ones(2, 4)))
print(int(compiled.report.blocks[0].cached))
"""

FOUR_PROCESSES = """
import os, sys
children = []
while len(children) < 4:
    child = os.fork()
    if child == 0:
        break
    children.append(child)
else:
    sys.exit(max(os.waitpid(child, 0)[1] for child in children))
"""


def test_many_processes_build_an_engine_once(fresh, tmp_path):
    """Who comes second waits and finds it."""
    outputs = fresh(FOUR_PROCESSES + COMPILE, tmp_path).splitlines()

    assert ["0", "1", "1", "1"] == sorted(outputs)


def test_many_threads_build_an_engine_once(tmp_path):
    """Threads of one process wait for each other, too."""
    with ThreadPoolExecutor(6) as pool:
        models = list(pool.map(lambda _: compiled(BASE, tmp_path, [VARYING]), range(6)))

    assert 1 == sum(not hits(model)[0] for model in models)


def test_a_killed_writer_leaves_no_engine_and_no_lock(tmp_path, fresh):
    """The next process builds, and in the end what was left behind goes."""
    killed = COMPILE.replace(
        "torch.manual_seed(0)",
        "torch.manual_seed(0); import os, signal\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)",
    )
    done = run_python("-c", killed, str(tmp_path))
    assert -signal.SIGKILL == done.returncode
    assert [] == CacheFolder(tmp_path).entries()

    assert "0" == fresh(COMPILE, tmp_path)
    assert "1" == fresh(COMPILE, tmp_path)
    for kind in ("engines", "timings"):
        (tmp_path / kind / "written.tmp").write_bytes(b"half")  # by another process, now
        (tmp_path / kind / "left.tmp").write_bytes(b"half")
        os.utime(tmp_path / kind / "left.tmp", (0, 0))
    compiled(nn.Sequential(nn.Linear(4, 9), nn.ReLU()), tmp_path, [VARYING])
    names = [path.name for path in tmp_path.glob("*/*.tmp")]
    assert "left.tmp" not in names
    assert 2 == names.count("written.tmp")


def test_a_failed_build_keeps_nothing_and_frees_the_lock(tmp_path):
    """The next compilation is free to try."""
    with watched_tensorrt(refuses=lambda build: "no"), pytest.raises(BuildError):
        compiled(BASE, tmp_path, [VARYING])
    assert [] == CacheFolder(tmp_path).entries()
    assert [False] == hits(compiled(BASE, tmp_path, [VARYING]))


def test_a_lock_that_a_build_waits_for_is_not_the_lock_of_the_engine(tmp_path):
    """Its error reaches the caller, and nobody takes the engine for one that another process builds."""

    def wait_for_something(build):
        raise Timeout("something.lock")

    waits = watched_tensorrt(refuses=wait_for_something)
    with waits, pytest.raises(Timeout, match="something"):
        torchtrt.compile(BASE, [VARYING], min_block_size=1, engine_cache=tmp_path)


def test_a_folder_that_cannot_be_used_is_a_warning(tmp_path):
    """Compiling goes on: a cache is never needed."""
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning, match="goes on without"):
        model = compiled(BASE, tmp_path / "file", [VARYING])

    torch.testing.assert_close(model(INPUTS[0]), BASE(INPUTS[0]))


def test_files_that_changed_places_are_built_again(tmp_path):
    """Each is intact, and is the engine of another key."""
    models = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval() for _ in range(2)]
    for model in models:
        compiled(model, tmp_path, [VARYING])
    first, second = tmp_path.glob("engines/*.engine")
    content = first.read_bytes()
    second.replace(first)
    second.write_bytes(content)
    x = torch.rand(2, 4)

    for model in models:
        again = compiled(model, tmp_path, [VARYING])
        assert [False] == hits(again)
        torch.testing.assert_close(again(x), model(x))


@pytest.mark.parametrize("kind", ["another user's", "link to itself", "pipe", "folder"])
def test_an_engine_that_cannot_be_read_is_left_alone(tmp_path, kind):
    """Another user may own it; one warning has the file, and what to do."""
    compiled(BASE, tmp_path, [VARYING])
    (path,) = tmp_path.glob("engines/*.engine")
    if kind == "another user's":
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("root reads everything")
    else:
        path.unlink()
        make = {
            "pipe": os.mkfifo,
            "folder": os.mkdir,
            "link to itself": lambda at: os.symlink(at, at),
        }
        make[kind](path)
    before = path.lstat()

    with pytest.warns(CacheWarning, match=f"{path.name}.*remove what is in the way") as warned:
        again = compiled(BASE, tmp_path, [VARYING])

    assert 1 == sum(path.name in str(warning.message) for warning in warned)
    assert [False] == hits(again)
    assert (before.st_ino, before.st_mode) == (path.lstat().st_ino, path.lstat().st_mode)


def test_pipes_in_place_of_files_do_not_stop_a_compilation_or_the_command(tmp_path):
    """Opening one would wait for its writer."""
    compiled(BASE, tmp_path, [VARYING])
    for path in (*tmp_path.glob("engines/*"), *tmp_path.glob("timings/*")):
        path.unlink()
        os.mkfifo(path)

    assert [] == CacheFolder(tmp_path).entries()
    with pytest.warns(CacheWarning, match=r"It is no regular file.*\.timings"):
        compiled(nn.Sequential(nn.Linear(4, 9), nn.ReLU()), tmp_path, [VARYING])


def test_the_umask_decides_who_may_read_the_files(tmp_path):
    """Users of one group may share a folder."""
    before = os.umask(0o002)
    try:
        compiled(BASE, tmp_path, [VARYING])
    finally:
        os.umask(before)
    files = [*tmp_path.glob("engines/*"), *tmp_path.glob("timings/*")]

    assert [0o664] * 2 == [stat.S_IMODE(path.stat().st_mode) for path in files]


def test_timings_are_kept_beside_the_engines(tmp_path):
    """What TensorRT measured once helps the next build, in whatever order processes write it."""
    with watched_tensorrt() as tensorrt:
        compiled(BASE, tmp_path, [VARYING])
        (path,) = tmp_path.glob("timings/*.timings")
        before = path.read_bytes()
        compiled(nn.Sequential(nn.Linear(4, 9), nn.ReLU()), tmp_path, [VARYING])

    _, second = tensorrt.builds
    assert before == bytes(second.config.get_timing_cache().serialize())


def test_the_command_shows_and_clears(tmp_path, capsys, monkeypatch):
    """As a table and as data; of the folder that is asked for, or the default."""
    compiled(BASE, tmp_path, [VARYING])
    monkeypatch.setenv("TORCHTRT_CACHE", str(tmp_path))

    assert 0 == main(["cache", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert str(tmp_path) == answer["folder"]
    (entry,) = answer["engines"]
    assert (
        answer["bytes"]
        == entry["bytes"]
        == sum(path.stat().st_size for path in tmp_path.glob("engines/*.engine"))
    )
    assert 3 == entry["nodes"]
    assert 0 == main(["cache", str(tmp_path)])
    assert entry["key"][:12] in capsys.readouterr().out
    assert 0 == main(["cache", "--clear"])
    assert "Removed" in capsys.readouterr().out
    assert [] == CacheFolder(tmp_path).entries()
    assert [] == list(tmp_path.glob("timings/*"))


@pytest.mark.parametrize("command", [["cache"], ["cache", "--clear"]], ids=" ".join)
def test_the_command_says_that_there_is_no_such_folder(command, tmp_path, capsys):
    """Rather than that nothing is in it: the name may be misspelt, or a file's."""
    (tmp_path / "file").touch()
    for name in ("file", "none"):
        assert 2 == main([*command, str(tmp_path / name)])
        assert f"no folder {tmp_path / name}" in capsys.readouterr().err
