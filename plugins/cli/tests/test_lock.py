"""A lock records what converts each op, and the doctor prints what has changed since."""

import json
import shutil

import pytest

from torchtrt_cli import main
from torchtrt_cli.lock import Lock, differences, read, to_json


@pytest.fixture
def locked(tmp_path, monkeypatch, site):
    """A lock of what is installed here, in the current folder; of this process, whose tests import libraries, not."""
    monkeypatch.chdir(tmp_path)
    done = site.run("-m", "torchtrt", "lock")
    assert "torchtrt doctor --locked" in done.stdout, done.stderr
    return tmp_path / "torchtrt.lock"


def test_a_lock_has_a_line_for_each_op(locked):
    """Sorted, so that a change is a line of a diff; the pack's version is in one place."""
    text = locked.read_text()
    lines = text.splitlines()

    data = json.loads(text)
    assert {"lock", "packs", "converters", "decompositions", "passes"} == set(data)
    assert "torchtrt-converters-aten-core 0.1.0" == data["packs"]["aten_core"]
    gelu = "aten_core torchtrt_converters_aten_core.converters.activation:gelu"
    assert [gelu] == data["converters"]["aten.gelu.default"]
    assert f'"aten.gelu.default": ["{gelu}"],' in lines
    assert data["decompositions"]["aten.log2.default"]
    assert "complex complex_numbers" in data["passes"]
    for name in ("packs", "converters", "decompositions"):
        assert sorted(data[name]) == list(data[name])


def test_a_lock_is_the_same_each_time(locked, site):
    """In another process with other hashes too."""
    first = locked.read_text()
    program = (
        f"import os; os.chdir({str(site.path)!r}); from torchtrt_cli import main; main(['lock'])"
    )

    done = site.run("-c", program, PYTHONHASHSEED="7")

    assert first == (site.path / "torchtrt.lock").read_text(), done.stderr


def test_nothing_has_changed_since(locked, site):
    """Status 0 in continuous integration; from another folder the file is named."""
    assert 0 == site.run("-m", "torchtrt", "doctor", "--locked").returncode
    kept = shutil.move(locked, locked.with_name("kept.json"))
    done = site.run("-m", "torchtrt", "doctor", "--locked", str(kept), "--json")
    assert [] == json.loads(done.stdout)["problems"]
    assert 0 == done.returncode


def test_an_upgrade_that_changes_who_converts_what_fails(locked, site, source_of_pack, capsys):
    """A new pack that takes an op is three differences: itself, and the op; one hint says what to do."""
    body = "pack.add('aten.gelu.default', convert, priority=ConverterPriority.HIGH)"
    site.unpack(site.wheel("taking", source_of_pack("taking", body)))

    done = site.run("-m", "torchtrt", "doctor", "--locked", str(locked), "--json")

    problems = [
        problem for problem in json.loads(done.stdout)["problems"] if problem["code"] == "locked"
    ]
    assert 1 == done.returncode
    assert (
        "the pack taking was not in use and is torchtrt-converters-taking 1.0"
        == problems[0]["what"]
    )
    assert problems[1]["what"].startswith("aten.gelu.default was converted by aten_core ")
    assert "and is by taking torchtrt_converters_taking._pack:" in problems[1]["what"]
    assert ["", "torchtrt lock" in problems[1]["hint"]] == [problems[0]["hint"], True]


A = Lock({"a": "a 1"}, {"x": ["a m:f"]}, {"y": ["a m:g"]}, ["a p"])


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        (A, []),
        (Lock({"a": "a 2"}, A.converters, A.decompositions, A.passes), ["the pack a was a 1 and is a 2"]),
        (Lock(A.packs, {}, A.decompositions, A.passes), ["x was converted by a m:f and is by nothing"]),
        (
            Lock(A.packs, {"x": ["b m:f", "a m:f"]}, A.decompositions, A.passes),
            ["x was converted by a m:f and is by b m:f, then a m:f"],
        ),
        (Lock(A.packs, A.converters, {"y": ["b m:g"]}, A.passes), ["y was decomposed by a m:g and is by b m:g"]),
        (Lock(A.packs, A.converters, A.decompositions), ["the passes over the graph were a p and are none"]),
    ],
)  # fmt: skip
def test_each_kind_of_difference_is_told(lock, expected):
    """Versions, converters and their order, decompositions, passes."""
    assert expected == list(differences(A, lock))


@pytest.mark.parametrize("lock", [A, Lock(passes=[])])
def test_a_lock_reads_as_it_was_written(lock, tmp_path):
    """An empty one too."""
    path = tmp_path / "torchtrt.lock"
    path.write_text(to_json(lock))

    assert lock == read(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "`torchtrt lock` writes it"),
        ("<<<<<<< HEAD", "is no lock"),
        ("[]", "is no lock"),
        ('{"lock": 1}', "is no lock"),
        (
            '{"lock": 1, "packs": [], "converters": {}, "decompositions": {}, "passes": []}',
            "is no lock",
        ),
        (
            '{"lock": 1, "packs": {}, "converters": {"x": 5}, "decompositions": {}, "passes": []}',
            "is no lock",
        ),
        (
            '{"lock": 1, "packs": {}, "converters": {"x": [5]}, "decompositions": {}, "passes": []}',
            "is no lock",
        ),
        (
            '{"lock": 1, "packs": {"x": 1}, "converters": {}, "decompositions": {}, "passes": []}',
            "is no lock",
        ),
        (
            '{"lock": 9, "packs": {}, "converters": {}, "decompositions": {}, "passes": []}',
            "of form 9",
        ),
    ],
)
def test_a_damaged_lock_is_status_2(content, words, tmp_path, capsys):
    """A merge that went wrong, or no file at all; with what to do."""
    path = tmp_path / "torchtrt.lock"
    if content is not None:
        path.write_text(content)

    assert 2 == main(["doctor", "--locked", str(path)])

    message = capsys.readouterr().err
    assert words in message
    assert str(path) in message


def test_nothing_is_locked_while_a_pack_is_broken(site, tmp_path):
    """It would leave out what the pack should convert."""
    site.unpack(site.wheel("broken", "raise ImportError('libfoo.so.2')"))
    program = f"import os; os.chdir({str(tmp_path)!r}); from torchtrt_cli import main; raise SystemExit(main(['lock']))"

    done = site.run("-c", program)

    assert 1 == done.returncode
    assert "ImportError: libfoo.so.2" in done.stderr
    assert "is not written" in done.stderr
    assert not (tmp_path / "torchtrt.lock").exists()
