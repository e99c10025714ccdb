"""What must work whatever is broken, works: the commands that print what is wrong."""

import json
import re

import pytest

from torchtrt_cli import main
from torchtrt_cli.installation import installation_problems, pieces

WITHOUT_PYTORCH = {"torch/__init__.py": "raise ImportError('libtorch_cpu.so: no such file')"}


@pytest.fixture
def install(site):
    """Puts files on the site, as broken installers do."""

    def put(files):
        for name, content in files.items():
            path = site.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return put


def distribution(name, version="1.0", *requires, entry_points=None):
    """Returns the files of a distribution."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {capability}" for capability in requires]
    files = {f"{folder}/METADATA": "\n".join(lines) + "\n"}
    return files | ({} if entry_points is None else {f"{folder}/entry_points.txt": entry_points})


@pytest.mark.parametrize(
    "command",
    ["packs --no-load", "doctor", "doctor --no-load", "new-pack vision", "--version", "--help"],
)
@pytest.mark.parametrize("start", ["module", "script"])
def test_a_command_that_helps_starts_without_pytorch(site, install, tmp_path, command, start):
    """However it is started, and nothing else of it imports PyTorch first."""
    install(WITHOUT_PYTORCH)
    script = tmp_path / "torchtrt"
    script.write_text("import sys\nfrom torchtrt_cli import main\nsys.exit(main())\n")
    how = ["-m", "torchtrt"] if start == "module" else [str(script)]
    if command.startswith("new-pack"):
        how = ["-c", f"import os; os.chdir({str(tmp_path)!r}); import runpy, sys; sys.argv[0] = {str(script)!r}; "
               "runpy.run_path(sys.argv[0], run_name='__main__')"]  # fmt: skip

    done = site.run(*how, *command.split(), libraries=())

    assert ("doctor" in command) == bool(done.returncode), done.stderr
    assert "Traceback" not in done.stderr
    if "packs" in command or "doctor" in command:
        assert "torchtrt-converters-aten-core 0.1.0" in done.stdout


@pytest.mark.parametrize("start", ["module", "script"])
@pytest.mark.parametrize(
    "command",
    ["packs", "lock", "converters", "coverage", "explain aten.relu", "inspect x.pt2", "cache"],
)
def test_a_command_that_needs_pytorch_says_so_in_a_sentence(
    site, install, tmp_path, command, start
):
    """And which command prints what to do."""
    install(WITHOUT_PYTORCH)
    script = tmp_path / "torchtrt"
    script.write_text("import sys\nfrom torchtrt_cli import main\nsys.exit(main())\n")

    how = ["-m", "torchtrt"] if start == "module" else [str(script)]
    done = site.run(*how, *command.split(), libraries=())

    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr == (
        "torchtrt: PyTorch cannot be imported: ImportError: libtorch_cpu.so: no such file. "
        "`torchtrt doctor` says what to do.\n"
    )


def test_the_doctor_says_that_pytorch_cannot_be_imported(site, install):
    """Why, what to do, and what is installed all the same."""
    install(WITHOUT_PYTORCH)

    done = site.run("-m", "torchtrt", "doctor", "--json", libraries=())

    answer = json.loads(done.stdout)
    (problem,) = answer["problems"]
    assert "torch-failed" == problem["code"]
    assert "ImportError: libtorch_cpu.so: no such file" in problem["what"]
    assert "install PyTorch again" in problem["hint"]
    assert "cannot be imported" == answer["versions"]["PyTorch"]
    assert {"not loaded"} == {pack["status"] for pack in answer["packs"]}
    assert "torchtrt-core" in [distribution["name"] for distribution in answer["distributions"]]


def test_metadata_that_stops_pytorchs_import_is_named(site, install):
    """Whatever it belongs to; and the way past it is one."""
    install(distribution("somebodys-tool", entry_points=b"[console_scripts]\nrun = caf\xe9:main\n"))

    doctor = ("-m", "torchtrt", "doctor", "--json")
    stopped = site.run(*doctor, libraries=())
    past = site.run(*doctor, libraries=(), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    listed = site.run("-m", "torchtrt", "packs", "--no-load")

    codes = [row["code"] for row in json.loads(stopped.stdout)["problems"]]
    assert ["bad-metadata", "torch-failed"] == codes
    (problem,) = json.loads(past.stdout)["problems"]
    assert "somebodys_tool-1.0.dist-info" == problem["distribution"]
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in problem["hint"]
    assert "in use" in past.stdout
    assert 0 == listed.returncode, listed.stderr


def test_a_pack_with_broken_metadata_is_one_problem(site, install):
    """Though two searches find it."""
    broken = distribution(
        "torchtrt-converters-odd", entry_points=b"[torchtrt.converters]\nodd = \xe9\n"
    )
    install(broken)

    done = site.run(
        "-m", "torchtrt", "doctor", "--no-load", "--json", TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    )

    assert 1 == len(json.loads(done.stdout)["problems"])


def test_what_is_installed_twice_is_named(site, install):
    """Which one Python uses, and which it hides."""
    install(distribution("torchtrt-core", "0.0.9") | distribution("torchtrt-audio-tools", "2.0"))

    done = site.run("-m", "torchtrt", "doctor", "--no-load", "--json")

    problems = [row for row in json.loads(done.stdout)["problems"] if row["code"] == "shadowed"]
    (problem,) = problems
    assert ("torchtrt-core", "0.1.0") == (problem["distribution"], problem["version"])
    assert "version 0.0.9 at" in problem["what"]


def test_a_folder_that_is_on_the_path_twice_is_no_second_install(site, install, tmp_path):
    """Under another name, by a link."""
    install(distribution("torchtrt-audio-tools", "2.0"))
    (tmp_path / "link").symlink_to(site.path)

    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'link')!r}); "
        "from torchtrt_cli.installation import installation_problems; print(installation_problems())"
    )

    assert "()" == site.run("-c", program).stdout.strip()


def test_what_is_required_and_not_there_is_named(site, install):
    """Of torchtrt's own pieces and of packs; extras and other platforms are not needed."""
    needs = (
        "torchtrt-core<0.1",
        "nosuch-library>=2",
        "other; extra == 'gpu'",
        "win; sys_platform == 'none'",
        "torch",
    )
    install(distribution("torchtrt-needy", "1.0", *needs))

    done = site.run("-m", "torchtrt", "doctor", "--no-load", "--json")

    problems = [
        (problem["what"], problem["hint"]) for problem in json.loads(done.stdout)["problems"]
    ]
    assert [what for what, _ in problems] == [
        "it requires torchtrt-core<0.1, and 0.1.0 is installed",
        "it requires nosuch-library>=2, and that is not installed",
    ]
    assert 'Run `pip install "nosuch-library>=2"`' in problems[1][1]


def test_editable_installs_are_told():
    """With the folder that they are worked on in."""
    (core,) = (piece for piece in pieces() if piece.name == "torchtrt-core")

    assert core.editable
    assert re.fullmatch(r"torchtrt-core 0\.1\.0 \(editable, .*/core\)", str(core))


def test_an_untested_pytorch_is_named_with_what_that_means(site, install):
    """Packages that are installed without their requirements bring torchtrt and any PyTorch together."""
    install(distribution("torchtrt-core", "0.1.0", "torch>=2.9,<2.9.1"))

    done = site.run("-m", "torchtrt", "doctor", "--no-load", "--json")

    problems = json.loads(done.stdout)["problems"]
    (problem,) = (problem for problem in problems if problem["code"] == "requirement")
    assert "it requires torch<2.9.1,>=2.9, and 2." in problem["what"]
    assert "No test has run with this PyTorch" in problem["hint"]


def test_nothing_is_wrong_with_this_installation():
    """No false alarm."""
    assert () == installation_problems()


@pytest.mark.parametrize(
    "command",
    ["packs", "doctor", "converters aten.relu", "lock", "coverage torch.add", "explain aten.relu"],
)
def test_json_is_json_whatever_a_pack_prints(site, source_of_pack, tmp_path, command):
    """While it is imported, while it registers and while the doctor asks it."""
    check = "\n@hookimpl\ndef torchtrt_check(pack):\n    print('loudest')\n"
    site.unpack(
        site.wheel("loud", 'print("loud")\n' + source_of_pack("loud", "print('louder')") + check)
    )
    site.unpack(
        site.wheel("closing", "import sys\nsys.stdout.close()\n" + source_of_pack("closing"))
    )
    (site.path / "noisy.py").write_text("print('noise')")
    start = "runpy.run_module('torchtrt', run_name='__main__', alter_sys=True)"
    program = f"import os, runpy, sys; os.chdir({str(tmp_path)!r}); {start}"

    done = site.run("-c", program, *command.split(), "--json", "--import", "noisy")

    json.loads(done.stdout)
    assert {"loud", "louder", "noise"} <= set(done.stderr.split())
    assert ("loudest" in done.stderr) == (command == "doctor")


def test_the_doctor_asks_for_no_pack_with_no_load(capsys):
    """Though this process has them."""
    main(["doctor", "--no-load", "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert {"not loaded, because of --no-load"} == {pack["reason"] for pack in answer["packs"]}
    assert {"Python", "torchtrt", "PyTorch", "GPU", "TensorRTs installed"} == set(
        answer["versions"]
    )


@pytest.mark.parametrize("command", ["packs --no-load", "doctor --no-load"])
def test_a_pack_that_hangs_is_listed_by_what_loads_none(site, install, source_of_pack, command):
    """So that a person finds its name."""
    site.unpack(site.wheel("hangs", "while True:\n    pass\n"))

    done = site.run("-m", "torchtrt", *command.split(), "--json", timeout=120)

    assert "hangs" in [pack["name"] for pack in json.loads(done.stdout)["packs"]]


@pytest.mark.parametrize(
    ("command", "position"),
    [
        ("doctor", "module"),
        ("converters", "hook"),
        pytest.param("doctor", "hook", marks=pytest.mark.slow),
        pytest.param("converters", "module", marks=pytest.mark.slow),
    ],
)  # each waits until the name is printed
def test_a_pack_that_hangs_is_named_while_it_does(site, source_of_pack, position, command):
    """Python cannot end it; a user can, and reads how to go on without."""
    hang = "import time\ntime.sleep(3600)\n"
    source = hang if position == "module" else source_of_pack("hangs", hang)
    site.unpack(site.wheel("hangs", source))
    process = site.start("-m", "torchtrt", command)
    try:
        line = process.stderr.readline()
    finally:
        process.kill()
        process.communicate()

    assert f"The pack 'hangs' (torchtrt-converters-hangs 1.0, {site.path}) is still being" in line
    assert "TORCHTRT_PACKS_DISABLE=hangs goes without it" in line


CHANGES = {
    "sys.path": "import sys\nsys.path.insert(0, '/nowhere')",
    "warnings.filters": "import warnings\nwarnings.simplefilter('ignore')",
    "torch.get_default_dtype()": "import torch\ntorch.set_default_dtype(torch.float64)",
    "torch.is_grad_enabled()": "import torch\ntorch.set_grad_enabled(False)",
    "torch.are_deterministic_algorithms_enabled()": "import torch\n"
    "torch._C._set_deterministic_algorithms(True)",
    "PyTorch's random numbers": "import torch\ntorch.rand(1)",
    "torch.relu": "import torch\ntorch.relu = torch.sigmoid",
    "os.environ": "import os\nos.environ['OMP_NUM_THREADS'] = '64'",
}


def test_the_doctor_says_which_pack_changes_the_process(site, source_of_pack):
    """In its module or in its hook; each problem has the changes of its own pack, and no other's."""
    for number, change in enumerate(CHANGES.values()):
        source = source_of_pack(f"odd{number}", "pass" if number % 2 else change)
        site.unpack(site.wheel(f"odd{number}", f"{change if number % 2 else ''}\n{source}"))

    answer = json.loads(site.run("-m", "torchtrt", "doctor", "--json").stdout)

    changed = [problem for problem in answer["problems"] if problem["code"] == "changed-process"]
    assert answer["problems"] == changed
    assert [f"odd{number}" for number in range(len(CHANGES))] == [
        problem["pack"] for problem in changed
    ]
    for problem, name in zip(changed, CHANGES, strict=True):
        assert [name] == [other for other in CHANGES if f"{other} was" in problem["what"]]
        assert 400 > len(problem["what"])
        assert f"TORCHTRT_PACKS_DISABLE={problem['pack']} goes without" in problem["hint"]


ANSWERS = [
    ("return 3", "hook-failed", "'int' object is not iterable"),
    ("return 'broken'", "bad-hook", "gave a str, not a Problem"),
    ("return [None]", "bad-hook", "gave a NoneType, not a Problem"),
    ("yield object()", "bad-hook", "gave a object, not a Problem"),
    ("raise SystemExit(3)", "hook-failed", "raised SystemExit: 3"),
    ("yield 1 / 0", "hook-failed", "raised ZeroDivisionError"),
]
"""What a check may do that it must not, and the code and the words of its problem."""


def test_nothing_that_a_check_gives_stops_the_doctor(site, source_of_pack):
    """It is a problem of the pack, and the checks of the others run."""
    healthy = "from torchtrt.packs import Problem\n    return [Problem('asked')]"
    for number, answer in enumerate((*(row[0] for row in ANSWERS), healthy)):
        check = f"\n@hookimpl\ndef torchtrt_check(pack):\n    {answer}\n"
        site.unpack(site.wheel(f"junk{number}", source_of_pack(f"junk{number}") + check))

    answer = json.loads(site.run("-m", "torchtrt", "doctor", "--json").stdout)

    problems = {
        problem["pack"]: (problem["code"], problem["what"]) for problem in answer["problems"]
    }
    assert ("check-failed", "asked") == problems.pop(f"junk{len(ANSWERS)}")
    assert {f"junk{number}" for number in range(len(ANSWERS))} == set(problems)
    for number, (returned, code, what) in enumerate(ANSWERS):
        assert code == problems[f"junk{number}"][0], returned
        assert what in problems[f"junk{number}"][1], returned


@pytest.mark.parametrize("command", ["packs", "doctor"])
def test_a_broken_pack_is_told_once_where_problems_are_listed(site, command):
    """The list has the problem, so no warning does."""
    site.unpack(site.wheel("broken", "raise ValueError('on purpose')"))

    done = site.run("-m", "torchtrt", command)

    said = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert said.count("Pack 'broken'") == 1
    assert "problem: Pack 'broken'" in said


@pytest.mark.parametrize("command", ["packs", "doctor", "explain aten.relu", "inspect x.pt2"])
def test_a_missing_distribution_of_torchtrt_is_named(site, install, command):
    """As one that another one needs, which an installation without dependencies lacks."""
    install({"torchtrt_runtime.py": "raise ModuleNotFoundError('gone', name='torchtrt_runtime')"})

    done = site.run("-m", "torchtrt", *command.split())

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "needs the distribution torchtrt-runtime, which is not installed" in done.stderr


def test_standard_output_is_the_answer_whatever_a_pack_writes(site, source_of_pack):
    """To the file descriptor, or by a program that it starts."""
    writes = 'import os\nos.write(1, b"descriptor\\n")\nos.system("echo program")\n'
    site.unpack(site.wheel("loud", writes + source_of_pack("loud")))

    done = site.run("-m", "torchtrt", "packs", "--json")

    assert "loud" in [pack["name"] for pack in json.loads(done.stdout)["packs"]]
    assert {"descriptor", "program"} <= set(done.stderr.splitlines())


@pytest.mark.parametrize("command", ["packs", "packs --json", "doctor"])
def test_a_message_that_has_no_bytes_is_shown(site, command):
    """A name of a file that is no UTF-8 has half of a character."""
    site.unpack(site.wheel("half", 'raise ValueError("bad \\ud800")\n'))

    done = site.run("-m", "torchtrt", *command.split(), PYTHONIOENCODING="utf-8:strict")

    assert r"bad \ud800" in done.stdout
    assert "Traceback" not in done.stderr


STARTED = {
    "a thread": """
import threading, time
def talk():
    for _ in range(400):
        print("a thread", flush=True)
        time.sleep(0.05)
threading.Thread(target=talk, name="endless").start()
""",
    "an exit handler": """
import atexit
atexit.register(print, "an exit handler")
""",
}


@pytest.mark.parametrize("started", STARTED)
def test_a_command_ends_whatever_a_pack_started(site, source_of_pack, started):
    """And its answer stays alone: threads, and handlers of the process's end, write to standard error."""
    site.unpack(site.wheel("started", STARTED[started] + source_of_pack("started")))
    done = site.run("-m", "torchtrt", "packs", "--json")

    assert 0 == done.returncode, done.stderr
    assert "started" in [pack["name"] for pack in json.loads(done.stdout)["packs"]]
    assert started in done.stderr
    assert ("these threads still run: endless" in done.stderr) == (started == "a thread")
